"""How the standard library's docstrings are shared out among the kinds, so that none is in two of them."""

from __future__ import annotations

from llm360.data.packaged.readers import module_docs, standard_library
from llm360.data.sources import Source

MATHS = (
    {"_pydecimal.py", "bisect.py", "calendar.py", "colorsys.py", "datetime.py", "_pydatetime.py", "fractions.py"}
    | {"graphlib.py", "hashlib.py", "heapq.py", "hmac.py", "numbers.py", "random.py", "secrets.py", "statistics.py"}
    | {"turtle.py"}
)
WEB = (
    {"cgi.py", "email", "ftplib.py", "html", "http", "imaplib.py", "json", "mailbox.py", "mimetypes.py", "nntplib.py"}
    | {"poplib.py", "smtplib.py", "socket.py", "socketserver.py", "ssl.py", "telnetlib.py", "urllib", "webbrowser.py"}
    | {"wsgiref", "xml", "xmlrpc"}
)
HELP = {
    "argparse.py",
    "bdb.py",
    "cmd.py",
    "difflib.py",
    "doctest.py",
    "getopt.py",
    "logging",
    "optparse.py",
    "pdb.py",
} | {"textwrap.py", "trace.py", "traceback.py", "unittest", "warnings.py"}
REFERENCE = (
    {"_pyio.py", "abc.py", "codecs.py", "collections", "contextlib.py", "copy.py", "ctypes", "dataclasses.py"}
    | {
        "enum.py",
        "functools.py",
        "gettext.py",
        "importlib",
        "inspect.py",
        "io.py",
        "ipaddress.py",
        "locale.py",
        "os.py",
    }
    | {"pathlib.py", "re", "string.py", "struct.py", "tarfile.py", "types.py", "typing.py", "uuid.py", "weakref.py"}
    | {"zipfile.py"}
)


def docs(name: str, kind: str, only: set[str]) -> Source:
    """Return a source of the docstrings of these entries of the standard library."""
    return Source(
        name=name,
        kind=kind,
        packages=(),
        reads=(),
        licence="PSF-2.0",
        documents=lambda _: module_docs(standard_library(only=frozenset(only))),
    )
