"""results.json: what was run and what came out, by model type."""

import json
import pathlib

FILE = pathlib.Path(__file__).with_name("results.json")


def record(file: pathlib.Path, model_type: str, section: str, value: dict):
    """Puts value at [model_type][section] of file. A training drops what was recorded of the model before it."""
    found = json.loads(file.read_text()) if file.exists() else {}
    of_model = found.setdefault(model_type, {})
    if section == "first course":
        of_model.clear()
    if section == "second course":
        of_model.pop("third course", None)
    if section.endswith("course"):
        of_model.pop("evaluation", None)
    of_model[section] = value
    file.write_text(json.dumps(found, indent=1) + "\n")
