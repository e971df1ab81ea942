"""The pictures of terminals show what the commands print, load nothing, and are on the pages of their commands."""

from tools.commands import files
from tools.pictures import IMAGES, words, words_of
from tools.terminals import SHOWN, pictures, place


def test_every_picture_is_drawn_and_on_its_page():
    drawn = pictures()
    assert set(drawn) == {place(path) for path in SHOWN}
    text = "\n".join(files().values())
    for path, typed in SHOWN.items():
        assert f"](../{place(path)})" in text
        picture = drawn[place(path)]
        assert typed.split()[-1] in picture
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
    assert "Digitizer.ch0" in drawn[place("trunkline capture runs")]


def test_the_picture_of_the_report_is_of_this_report():
    # Else: trunkline demo --output demo, then python -m tools.pictures demo/capture
    made = words()
    assert {"Messages", "Missing", "per second", "Gaps"} <= set(made.splitlines())
    assert words_of(IMAGES / "report.png") == made
