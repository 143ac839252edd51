"""The part of Windows' ``msvcrt`` that locks bytes. There a lock belongs to one opening of a file."""

import fcntl
import os
import struct

LK_UNLCK, LK_NBLCK = 0, 2


def locking(descriptor, mode, count):
    kind = {LK_UNLCK: fcntl.F_UNLCK, LK_NBLCK: fcntl.F_WRLCK}[mode]
    first = os.lseek(descriptor, 0, os.SEEK_CUR)
    region = struct.pack("hhqqi", kind, os.SEEK_SET, first, count, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, region)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error
