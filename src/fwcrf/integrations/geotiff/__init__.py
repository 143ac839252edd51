"""GeoTIFF: refinement window by window, with the coordinate system, tags and nodata of the image."""

from fwcrf.integrations.geotiff.refine import refine_geotiff

__all__ = ["refine_geotiff"]
