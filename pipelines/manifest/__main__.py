"""Write the JSON schema of the manifests to standard output: `python -m pipelines.manifest`."""

from __future__ import annotations

import json
import sys

from pipelines.manifest.schema import json_schema

if __name__ == "__main__":
    json.dump(json_schema(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
