"""A short name for ``fwcrf.integrations.transformers``.

>>> refine_semantic.__module__
'fwcrf.integrations.transformers'
"""

from fwcrf.integrations.transformers import Segmenter, refine_masks, refine_semantic

__all__ = ["Segmenter", "refine_masks", "refine_semantic"]
