"""The tools of the research example: search, fetch, extract, cite and report."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path

COLLECTION = Path(__file__).parents[1] / "papers.json"


def search(topic: str, source: str, limit: int = 10) -> dict:
    """Finds papers about a topic in the bundled collection.

    Args:
        topic: A topic of the collection.
        source: The address of the server that has their texts.
        limit: How many papers to return at most.
    """
    papers = [one for one in json.loads(COLLECTION.read_text()) if one["topic"] == topic]
    found = [
        {"id": one["id"], "title": one["title"], "url": f"{source}/papers/{one['id']}"}
        for one in papers[:limit]
    ]
    return {"papers": found, "count": len(found)}


def fetch(url: str) -> dict:
    """Reads one paper from its server; a repeated attempt sends the same idempotency key."""
    key = os.environ["LEADHAND_KEY"]
    request = urllib.request.Request(url, headers={"Idempotency-Key": key})
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def extract(paper: dict) -> dict:
    """Summarises a paper: its first and its last sentence, and its most frequent long words."""
    if "error" in paper:
        return {"missing": paper["error"].splitlines()[0]}
    sentences = re.split(r"(?<=\.)\s+", paper["text"])
    words = re.findall(r"[a-z]{5,}", paper["text"].lower())
    top = sorted(set(words), key=lambda word: (-words.count(word), word))[:3]
    summary = " ".join(dict.fromkeys([sentences[0], sentences[-1]]))
    return {
        **{key: paper[key] for key in ("title", "authors", "year")},
        "summary": summary,
        "keywords": top,
    }


def bibliography(papers: list) -> list:
    """One line for each paper that was read, by year."""
    read = [one for one in papers if "missing" not in one]
    return [
        f"{one['authors']} ({one['year']}). {one['title']}."
        for one in sorted(read, key=lambda one: one["year"])
    ]


def report(topic: str, papers: list, references: list, file: str) -> dict:
    """Writes the report as a Markdown file in the working folder."""
    lines = [f"# Papers on {topic}", ""]
    for one in papers:
        if "missing" not in one:
            lines += [f"## {one['title']}", "", one["summary"], "", ", ".join(one["keywords"]), ""]
    missing = sum("missing" in one for one in papers)
    lines += [f"{missing} of {len(papers)} papers could not be read.", "", "## References", ""]
    lines += [f"- {line}" for line in references]
    Path(file).write_text("\n".join(lines) + "\n")
    return {"file": file, "read": len(papers) - missing, "missing": missing}
