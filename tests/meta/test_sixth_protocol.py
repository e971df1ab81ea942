"""A made-up protocol is in every face of the package once it has its rooms, its row, and the types of its options."""

import shutil
import subprocess
import sys
from pathlib import Path

import trunkline

ROOT = Path(__file__).parents[2]
SIXTH = Path(__file__).parent / "sixth"

# The files outside its rooms that are edited by hand, and how; `tools/lists.py` writes the others.
EDITED = {
    "python/trunkline/_protocols.py": (
        "RECORDED = ",
        """PROTOCOLS += (Protocol("sixth", roles=("Node",)),)
RECORDED = """,
    ),
    "python/trunkline/columns.py": (
        "# The columns that count frames",
        '''class SixthOptions(TypedDict, total=False):
    """Options of decoding it."""

    payload: bool


# The columns that count frames''',
    ),
}


def rooms():
    """The files of the made-up protocol, as a contributor names them."""
    files = [str(path.relative_to(SIXTH)) for path in SIXTH.rglob("python/**/*.py")]
    return [path.replace("sixth", "NAME") for path in files]


def test_it_is_found_in_every_face(tmp_path):
    root = tmp_path / "root"
    without = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "python", root / "python", ignore=without)
    shutil.copytree(ROOT / "tools", root / "tools", ignore=without)
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copytree(SIXTH / "python", root / "python", dirs_exist_ok=True)
    for path, (before, after) in EDITED.items():
        text = (root / path).read_text()
        assert text.count(before) == 1
        (root / path).write_text(text.replace(before, after))
    (extension,) = Path(trunkline.__file__).parent.glob("_native*.so")
    run = [sys.executable, str(SIXTH / "native.py"), str(extension), str(root), str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_its_rooms_are_those_of_the_guide():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(rooms()) == 5
    for path in (*rooms(), *EDITED, "tools/lists.py"):
        assert path in guide, path
