"""results.json: what was run and what came out, by model type."""

import json
import pathlib

FILE = pathlib.Path(__file__).with_name("results.json")


def record(file: pathlib.Path, model_type: str, section: str, value: dict):
    """Puts value at [model_type][section] of file. A new training drops the evaluation of the old model."""
    found = json.loads(file.read_text()) if file.exists() else {}
    if section == "training":
        found[model_type] = {}
    found.setdefault(model_type, {})[section] = value
    file.write_text(json.dumps(found, indent=1) + "\n")
