"""The index of messages has those of the source, and what the page of troubleshooting quotes is printed."""

import html
import re

import pytest
from tools import messages, quotes
from tools.rust_texts import kinds
from tools.texts import key, texts, words

TROUBLE = (quotes.DOCS / quotes.TROUBLE).read_text()


@pytest.fixture(scope="module")
def pages():
    return messages.files()


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("a role needs an endpoint: give bind= or connect=, or a socket=", "LocalProtocolError"),
        ("Missing an endpoint: give --bind or --connect.", "BadParameter"),
        ("… cannot be reached: …; it is tried again and again", "INFO"),
        ("the broker is silent: reconnecting", "WARNING"),
        ("target: the store failed", "ERROR"),
        ("the capture cannot keep up: rows are lost, see stats.capture_lost", "WARNING"),
        ("…: is being written by process …", "CaptureError"),
        ("this request has already been answered", "LocalProtocolError"),
        ("no reply came within … s", "TimeoutError"),
    ],
)
def test_a_message_is_read_from_the_source_with_what_raises_it(text, raised):
    assert raised in {each.raised for each in texts() if each.text == text}


def test_there_are_messages_of_every_part_and_none_that_no_user_sees():
    found = texts()
    assert len(found) > 600
    for part in ("_roles", "capture", "cdt", "cli", "dcp", "mc0", "mtl", "spark"):
        assert sum(each.place.startswith(f"python/trunkline/{part}/") for each in found) > 2, part
    assert sum(each.place.startswith("rust/") for each in found) > 100
    assert not {each.raised for each in found} & {"AssertionError", "NotImplementedError", "DEBUG"}
    # A text that only varies would be found in everything.
    assert all(len(words(each.text)) > 1 for each in found)


def test_kinds_are_those_of_every_list():
    lists = kinds()
    assert len(lists) >= 5
    assert lists["zmtp.reason.Reason"]["other_mechanism"].startswith("it offers another security")
    for slugs in lists.values():
        assert len(slugs) > 5
        assert all(slugs.values())


def test_what_the_page_of_troubleshooting_quotes_is_printed():
    found = quotes.symptoms()
    assert len(found) > 50
    assert [quote.text for quote in found if not quotes.is_known(quote.text)] == []


@pytest.mark.parametrize(
    "symptom",
    [
        "nobody prints this text",
        "a role needs an endpoint: give none",
        "… cannot be reached: nobody prints this text; it is tried again and again",
        "no_such_kind",
    ],
)
def test_what_is_not_printed_is_noticed(symptom):
    assert not quotes.is_known(symptom)


def test_every_message_is_on_one_page_in_the_order_of_the_alphabet(pages):
    rows = 0
    for area in messages.AREAS:
        lines = re.findall(
            r'^\| <h3 class="message" id="[^"]+"><code>(.*?)</code>',
            html.unescape(pages[f"messages/{area}.md"]),
            re.MULTILINE,
        )
        assert lines == sorted(lines, key=key), area
        rows += len(lines)
    assert rows >= len({each.text for each in texts()})


def test_a_message_leads_to_the_row_that_quotes_it(pages):
    linked = set(re.findall(r"troubleshooting\.md#([\w-]+)", "".join(pages.values())))
    anchors = re.findall(r"\{ #([\w-]+) \.message \}", quotes.anchored(TROUBLE))
    assert len(anchors) == len(set(anchors))
    assert len(linked) > 30
    assert linked <= set(anchors)
