"""Parts of the scripts that measure presets and parameters on real scores, and write the tables."""
