"""How much longer things may take here than on a machine that has nothing else to do."""

import os


def patience(seconds=1.0):
    """The seconds that something may take, times what each processor has to do at the moment: those who wait for a disk count, too."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
