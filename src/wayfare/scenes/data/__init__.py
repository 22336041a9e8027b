"""Annotated pictures: settings of a recipe (`scene_data`), the reader of psg.json, and what it gives."""
