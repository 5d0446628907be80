"""No file, function or folder grows above the limits of scripts/sizes.py."""

from __future__ import annotations

from pathlib import Path

from scripts.sizes import FILE, FOLDER, FUNCTION, findings


def test_what_is_too_large_is_named_with_its_size(tmp_path: Path):
    body = "    pass\n"
    function = f"@cache\ndef long():\n{body * FUNCTION}"
    files = {"many/long.py": function, "many/large.lua": "--\n" * (FILE + 1)}
    files |= {f"many/{number}.py": "" for number in range(FOLDER - 1)}
    files |= {"fine/short.py": function.replace(body, "", 1), "fine/large.lua": "--\n" * FILE}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [*findings(tmp_path, [tmp_path / name for name in files])] == [
        "many/long.py:2: long has 51 lines; a function has at most 50",
        "many/large.lua: 451 lines; a file has at most 450",
        "many: 31 files; a folder has at most 30",
    ]
