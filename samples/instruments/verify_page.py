"""The page of verify.py: both pictures, their difference, the table of verdicts, settings and hashes, in one file."""

import base64
import html
import io

import numpy
from PIL import Image

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.good { color: #176b2c } .differs { color: #b00020; font-weight: bold }
figure { display: inline-block; margin: 0 1em 1em 0; vertical-align: top } img { max-width: 22em; width: 22em; image-rendering: auto }
figcaption { color: #555 } code { font-size: .85em; overflow-wrap: anywhere }
"""


def picture(pixels, caption):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    text = html.escape(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def table(head, rows, numbers=()):
    def cells(row, tag):
        return "".join(f'<{tag}{" class=number" if i in numbers else ""}>{cell}</{tag}>' for i, cell in enumerate(row))

    return (
        "<table><tr>"
        + cells(head, "th")
        + "</tr>"
        + "".join("<tr>" + cells(row, "td") + "</tr>" for row in rows)
        + "</table>"
    )


def number(value):
    return "" if value is None else f"{value:.2e}"


def verdict_rows(rows):
    made = []
    for row in rows:
        notes = [row.get("note"), row.get("given") and f"given {row['given']}"]
        verdict = '<span class="good">good</span>' if row["good"] else '<span class="differs">differs</span>'
        made.append(
            [
                html.escape(row["stage"]),
                html.escape(row["what"]),
                number(row.get("error")),
                number(row.get("yardstick")),
                number(row.get("allowed")),
                verdict,
                html.escape("; ".join(note for note in notes if note)),
            ]
        )
    return made


def make(report, job, pixels, reference):
    sumi = report["sumi"]
    parts = [
        f"<!doctype html><meta charset=utf-8><title>sumi and the reference: {html.escape(report['checkpoint'])}</title>",
        f"<style>{STYLE}</style><h1>sumi and the reference on {html.escape(report['checkpoint'])}</h1>",
        f'<p class="{"good" if report["verdict"] == "good" else "differs"}">{html.escape(report["summary"])}</p>',
    ]
    parts.append(picture(pixels, f"sumi {sumi['sumi']}, {sumi['device']}"))
    parts.append(picture(reference, f"{report['pipeline']}, float32"))
    if pixels.shape == reference.shape:
        apart = numpy.abs(pixels.astype(int) - reference.astype(int))
        most = max(int(apart.max()), 1)
        scale = max(255 // most, 1)
        parts.append(
            picture(
                numpy.minimum(apart * scale, 255).astype(numpy.uint8),
                f"difference, {scale} times as bright; at most {int(apart.max())} of 255",
            )
        )
    for image in job["pictures"]:
        parts.append(picture(numpy.asarray(image), "picture to edit"))
    parts.append(
        "<h2>Stages</h2>"
        + table(
            ["stage", "compared", "error", "the reference's in bfloat16", "allowed", "verdict", ""],
            verdict_rows(report["rows"]),
            numbers=(2, 3, 4),
        )
    )
    parts.append(
        "<p>Errors are relative L2 distances to the reference in float32. <i>given</i>: the reference got this from "
        "sumi, so that the stage is judged by itself.</p>"
    )
    settings = [
        ["prompt", sumi["prompt"]],
        ["negative prompt", sumi["negative"] or "none"],
        ["size", f"{sumi['width']}x{sumi['height']}"],
        ["steps", sumi["steps"]],
        ["guidance", sumi["guidance"]],
        ["seed", sumi["seed"]],
        ["sumi", f"{sumi['sumi']}, {sumi['device']}, weights {sumi['weights']}"],
        ["reference", f"{report['pipeline']}, {report['gpu'] or 'CPU'}"],
    ]
    settings += [[name, version] for name, version in report["versions"].items()]
    settings += [[f"seconds: {what}", f"{value:.1f}"] for what, value in report["seconds"].items()]
    parts.append("<h2>Settings</h2>" + table(["", ""], [[html.escape(str(cell)) for cell in row] for row in settings]))
    parts += [f"<p>Note: {html.escape(note)}.</p>" for note in report["notes"]]
    if report["files"]:
        parts.append(
            "<h2>Files that sumi read</h2>"
            + table(
                ["file", "bytes", "SHA-256"],
                [[html.escape(f["path"]), f["bytes"], f"<code>{f['sha256']}</code>"] for f in report["files"]],
                numbers=(1,),
            )
        )
    return "\n".join(parts) + "\n"
