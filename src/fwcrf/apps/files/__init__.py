"""Images, scores, label maps and settings in files.

Files are not trusted: their size in memory is checked before decoding, nothing is unpickled, and a damaged
file raises ``FileError``. Files are written atomically.
"""

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.images import Picture, read_image
from fwcrf.apps.files.labels import read_labels, write_labels
from fwcrf.apps.files.scores import Scores, read_scores

__all__ = ["FileError", "Picture", "Scores", "read_image", "read_labels", "read_scores", "write_labels"]
