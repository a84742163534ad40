"""Pages that report_demo writes: well formed, readable at every width, usable with mouse and keyboard in Chromium."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import CHECKOUT, PROGRAM

sys.path.insert(0, str(CHECKOUT / "scripts/workshop"))
import browser  # noqa: E402

DEMO = Path(PROGRAM).resolve().parents[1] / "tests/unit/report/report_demo"
VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}
needs_chromium = pytest.mark.skipif(not browser.program(), reason="chromium is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Writes a page of one kind, once."""
    folder, written = tmp_path_factory.mktemp("pages"), {}

    def page(kind):
        if kind not in written:
            written[kind] = folder / f"{kind}.html"
            subprocess.run([DEMO, written[kind], kind], check=True)
        return written[kind]

    return page


class Balance(HTMLParser):
    """Every tag is closed by its own end tag; collects the SVGs, the JSON, ids and links."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.headings, self.json = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if attributes.get("href", "").startswith("#"):
            self.links.append(attributes["href"][1:])
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if attributes.get("type") == "application/json":
            self.json.append("")
        if tag not in VOID:
            self.open.append((tag, attributes))

    def handle_startendtag(self, tag, attributes):
        assert self.open and any(name == "svg" for name, _ in self.open), f"<{tag}/> outside an svg"

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> at {self.getpos()} ends {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1][1].get("type") == "application/json":
            self.json[-1] += data


def svgs(text):
    """The outermost svg elements."""
    at = 0
    while (begin := text.find("<svg", at)) >= 0:
        depth, at = 1, begin + 4
        while depth:
            inner, end = text.find("<svg", at), text.find("</svg>", at)
            depth += 1 if 0 <= inner < end else -1
            at = (inner + 4) if 0 <= inner < end else (end + 6)
        yield text[begin:at]


@pytest.mark.parametrize("kind", ["demo", "empty", "long", "live"])
def test_pages_are_well_formed(pages, kind):
    text = pages(kind).read_text()
    parser = Balance()
    parser.feed(text)
    parser.close()
    assert not parser.open
    assert len(set(parser.ids)) == len(parser.ids)
    assert set(parser.links) <= set(parser.ids)
    assert parser.headings[0] == 1 and all(b - a <= 1 for a, b in zip(parser.headings, parser.headings[1:]))
    for part in parser.json:
        json.loads(part)
    found = list(svgs(text[text.index("<body>"):]))
    assert found
    for svg in found:
        ElementTree.fromstring(svg)
    assert len(text) < 2_000_000


@needs_chromium
@pytest.mark.parametrize("kind", ["demo", "empty"])
def test_pages_look_right(pages, kind, tmp_path):
    looked = subprocess.run([sys.executable, CHECKOUT / "scripts/workshop/look_at_report", pages(kind), tmp_path],
                            capture_output=True, text=True)
    assert (looked.returncode, looked.stdout, looked.stderr) == (0, "", "")
    assert (tmp_path / "print.pdf").read_bytes().startswith(b"%PDF")


@needs_chromium
def test_the_look_finds_faults(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("""<!doctype html><body style="color:#999"><script>undefinedFunction()</script>
        <div style="width:5000px;height:2px"></div><p>grey</p><svg width="100" height="40" style="overflow:hidden">
        <text x="2" y="20">one</text><text x="4" y="20">two</text><text x="95" y="38" font-size="8">cut</text></svg>""")
    looked = subprocess.run([sys.executable, CHECKOUT / "scripts/workshop/look_at_report", page, tmp_path / "shots"],
                            capture_output=True, text=True)
    assert looked.returncode == 1
    for fault in ("undefinedFunction", "outside the window", "contrast", "texts overlap", "text is cut", "text of 8 px",
                  "px wide in a window"):
        assert fault in looked.stdout, fault


def tooltip(page, chart):
    return page.evaluate(f"document.querySelector('#chart-{chart} .tooltip').innerText")


def x_labels(page, chart):
    return page.evaluate(f"[...document.querySelectorAll('#chart-{chart} .x-axis .label')].map(n => n.textContent)")


@pytest.fixture
def demo(pages):
    with browser.Page(pages("demo"), width=1024) as page:
        yield page
        assert page.errors == []


def focus(page, chart):
    page.evaluate(f"document.querySelector('#chart-{chart} .plot').focus()")


@needs_chromium
def test_keyboard(demo):
    data = demo.evaluate("""(() => { const d = JSON.parse(document.querySelector('#chart-loss script').textContent);
        return { mean: d.series[0].mean.slice(0, 2), last: d.places[0].last[1], first: d.places[0].first[1] }; })()""")
    focus(demo, "loss")
    demo.press("ArrowRight")
    begin = tooltip(demo, "loss")
    assert begin.startswith("step 0\ntrain (0–31)\t") and "evaluation" in begin  # the nearest place names the title
    demo.press("ArrowRight", "ArrowRight")
    text = tooltip(demo, "loss")
    assert text.startswith(f"steps {data['first']}–{data['last']}\n")
    assert "train" in text and f"{data['mean'][1]:g} nats" in text and "evaluation" in text
    demo.press("ArrowLeft", "ArrowLeft")
    assert tooltip(demo, "loss") == begin
    labels = x_labels(demo, "loss")
    demo.press("+", "+")
    assert x_labels(demo, "loss") != labels
    demo.press("-")
    zoomed = x_labels(demo, "loss")
    assert zoomed != labels
    demo.press("0")
    assert x_labels(demo, "loss") == labels
    demo.press("End")
    assert tooltip(demo, "loss").startswith("step 20,000\n")
    demo.press("Escape")
    assert tooltip(demo, "loss") == ""
    assert demo.evaluate("document.activeElement === document.body")


@needs_chromium
def test_mouse(demo):
    box = demo.evaluate("""(() => { const plot = document.querySelector('#chart-device .plot svg');
        plot.scrollIntoView({ block: 'center', behavior: 'instant' });
        const b = plot.getBoundingClientRect(); return { x: b.x, y: b.y + 60, width: b.width }; })()""")
    middle = box["x"] + box["width"] / 2
    demo.mouse("mouseMoved", middle, box["y"])
    text = tooltip(demo, "device")
    assert "use" in text and "memory" in text and "64.5 %" in text
    labels = x_labels(demo, "device")
    demo.mouse("mousePressed", middle, box["y"], button="left", clickCount=1)
    demo.mouse("mouseMoved", middle + 80, box["y"], button="left", buttons=1)
    demo.mouse("mouseReleased", middle + 80, box["y"], button="left", clickCount=1)
    zoomed = x_labels(demo, "device")
    assert zoomed != labels and zoomed[0] != "0"
    demo.mouse("mousePressed", middle, box["y"], button="left", clickCount=2)
    demo.mouse("mouseReleased", middle, box["y"], button="left", clickCount=2)
    assert x_labels(demo, "device") == labels
    demo.mouse("mouseWheel", middle, box["y"], deltaX=0, deltaY=-100, modifiers=2)  # with control
    assert x_labels(demo, "device") != labels


@needs_chromium
def test_zoomed_charts_look_right(demo):
    for chart in ("loss", "throughput", "stages", "device", "ranks"):
        focus(demo, chart)
        demo.press("+", "+", "+", "+")
        demo.press("ArrowRight")
        assert tooltip(demo, chart)
    checks = (CHECKOUT / "scripts/workshop/page_checks.js").read_text()
    for width in (400, 1920):
        demo.resize(width, 900)
        assert demo.evaluate(checks) == []


@needs_chromium
def test_theme_is_remembered(demo):
    colour = "getComputedStyle(document.body).backgroundColor"
    light = demo.evaluate(colour)
    demo.evaluate("document.querySelector('button.theme').click()")
    dark = demo.evaluate(colour)
    assert dark != light
    demo.load()
    assert demo.evaluate(colour) == dark
    demo.show("dark")
    demo.evaluate("document.querySelector('button.theme').click()")
    assert demo.evaluate(colour) == light


def live(pages, folder, seconds):
    """The page of a run that goes on, which reloads itself after so many seconds."""
    text = pages("live").read_text()
    assert text.count('data-reload-s="3"') == 1
    page = folder / "live.html"
    page.write_text(text.replace('data-reload-s="3"', f'data-reload-s="{seconds}"'))
    return page


@needs_chromium
def test_a_live_page_reloads_itself(pages, tmp_path):
    with browser.Page(live(pages, tmp_path, 1)) as page:
        for _ in range(2):
            page.events.clear()
            page.wait_for_load()
        assert page.errors == []


@needs_chromium
def test_reload_keeps_the_place(pages, tmp_path):
    with browser.Page(live(pages, tmp_path, 3600), width=1024) as page:
        focus(page, "loss")
        page.press("+", "+")
        labels = x_labels(page, "loss")
        page.evaluate("document.querySelector('#chart-loss details').open = true")
        page.evaluate("window.scrollTo({ top: 700, behavior: 'instant' })")
        page.events.clear()
        page.evaluate("location.reload()")
        page.wait_for_load()
        assert page.evaluate("window.scrollY") == 700
        assert page.evaluate("document.querySelector('#chart-loss details').open")
        assert x_labels(page, "loss") == labels
        assert page.errors == []
