"""A long function is an error of scripts/sizes.py, a large file a note."""

from __future__ import annotations

from pathlib import Path

from scripts.sizes import FILE, FUNCTION, large_files, long_functions


def test_long_function_is_an_error_and_large_file_a_note(tmp_path: Path):
    body = "    pass\n"
    function = f"@cache\ndef long():\n{body * FUNCTION}"
    files = {"long.py": function, "large.lua": "--\n" * (FILE + 1)}
    files |= {"short.py": function.replace(body, "", 1), "fine.lua": "--\n" * FILE}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in files]
    assert [*long_functions(tmp_path, paths)] == [
        "long.py:2: long has 51 lines; a function has at most 50"
    ]
    assert [*large_files(tmp_path, paths)] == [
        "note: large.lua: 801 lines; above 800, look for two ideas in it"
    ]
