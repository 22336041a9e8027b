"""The files that come with Wayfare: recipes, and the claims of the papers."""

from __future__ import annotations

from pathlib import Path

from wayfare.core.errors import unknown

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOTS = (_PACKAGE, _PACKAGE.parents[1])  # installed; in the working tree


def recipes() -> dict[str, Path]:
    """The recipes that come with Wayfare, and those in ./recipes, by name."""
    found: dict[str, Path] = {}
    for root in (*(each / "recipes" for each in _ROOTS), Path("recipes")):
        found |= {str(file.relative_to(root).with_suffix("")): file for file in sorted(root.glob("**/*.toml"))}
    return found


def recipe_path(name: str) -> Path:
    """The file behind a recipe's path or name."""
    path, known = Path(name), recipes()
    if path.suffix == ".toml" or (path.exists() and name not in known):
        return path
    if name not in known:
        raise unknown("recipe", name, known, "give the path of a TOML file or a recipe's name")
    return known[name]


def claim_files() -> dict[str, Path]:
    """The files of claims, by paper."""
    return {file.stem: file for root in _ROOTS for file in sorted((root / "claims").glob("*.toml"))}
