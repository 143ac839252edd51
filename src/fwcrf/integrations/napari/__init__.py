"""A plugin for napari: Plugins > Dense CRF > Refine labels. ``napari.yaml`` is its manifest."""
