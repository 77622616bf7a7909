"""Fetch the libraries that pages embed from the npm registry, in the versions of libraries.json.

`make libraries` runs it. It refuses a file whose SHA-256 is not that in libraries.json; to change a
version, change both there.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

ASSETS = Path(__file__).parents[1] / "pipelines" / "pages" / "assets"


def main() -> None:
    """Fetch and compare all libraries, then write them."""
    fetched = {}
    for library in json.loads((ASSETS / "libraries.json").read_text("utf-8")):
        package = f"{library['name']}@{library['version']}"
        print(f"fetching {package}")
        with TemporaryDirectory() as folder:
            subprocess.run(
                ["npm", "pack", "--silent", "--pack-destination", folder, package],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                for path, name in (
                    (library["path"], library["file"]),
                    ("LICENSE", library["license_file"]),
                ):
                    member = archive.extractfile(f"package/{path}")
                    assert member is not None, f"{package} has no {path}"
                    fetched[name] = member.read()
        found = hashlib.sha256(fetched[library["file"]]).hexdigest()
        if found != library["sha256"]:
            sys.exit(
                f"{package}: expected {library['path']} with SHA-256 {library['sha256']}, "
                f"found {found}"
            )
    for name, content in fetched.items():
        (ASSETS / name).write_bytes(content)


if __name__ == "__main__":
    main()
