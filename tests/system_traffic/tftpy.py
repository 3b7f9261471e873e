"""Stands for the module that Open vSwitch's servers want for TFTP, which Debian does not have: Debian's
tftpd-hpa serves."""

import os


class TftpShared:
    DEF_TFTP_PORT = 69


class TftpServer:
    def __init__(self, tftproot):
        self.root = os.path.abspath(tftproot)

    def listen(self, address, port):
        """Serves until it is ended."""
        os.execvp("in.tftpd", ["in.tftpd", "--foreground", "--user", "root", "--secure", "--address", f"{address}:{port}", self.root])
