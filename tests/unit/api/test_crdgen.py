"""The generator writes what the models say, and tells what to run when the files say something else."""

from pathlib import Path

import pytest

from capox.api.crdgen import COMMAND, generated_files, main, stale_files, write_files

FILES = generated_files()


def test_generation_repeats_itself() -> None:
    """The same models give the same bytes."""
    assert generated_files() == FILES


def test_every_kind_has_a_file_and_the_kustomization_names_them() -> None:
    """config/ refers to the folder, so the folder knows its files."""
    assert sorted(FILES) == [
        "config/admission/machine_spec.yaml",
        "crds/kustomization.yaml",
        "crds/oxideclusters.yaml",
        "crds/oxideclustertemplates.yaml",
        "crds/oxidemachines.yaml",
        "crds/oxidemachinetemplates.yaml",
        "docs/reference/api.md",
    ]
    for path in FILES:
        if path.startswith("crds/oxide"):
            assert f"- {Path(path).name}\n" in FILES["crds/kustomization.yaml"]


def test_every_file_says_that_it_is_generated() -> None:
    """Whoever opens a file learns in its first line not to edit it, and what makes it."""
    for text in FILES.values():
        first = text.splitlines()[0]
        assert COMMAND in first
        assert "Do not edit" in first


def test_writing_makes_the_check_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command repairs what the check complains about, and the second run has nothing to do."""
    assert main(["--root", str(tmp_path)]) == 0
    assert sorted(capsys.readouterr().out.split()[1::2]) == sorted(FILES)
    assert main(["--root", str(tmp_path), "--check"]) == 0
    assert main(["--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_the_check_names_the_stale_files_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edited file and a missing one fail the check; the message says which, and what to run."""
    write_files(tmp_path, FILES)
    (tmp_path / "crds/oxidemachines.yaml").write_text("edited: true\n")
    (tmp_path / "docs/reference/api.md").unlink()

    assert main(["--root", str(tmp_path), "--check"]) == 1

    said = capsys.readouterr().err
    assert "crds/oxidemachines.yaml, docs/reference/api.md" in said
    assert f"run `{COMMAND}` and commit the result" in said
    assert (tmp_path / "crds/oxidemachines.yaml").read_text() == "edited: true\n"


def test_a_crd_that_no_model_makes_is_surplus(tmp_path: Path) -> None:
    """A kind that is gone leaves no file behind, for kustomize and Helm would go on to install it."""
    write_files(tmp_path, FILES)
    (tmp_path / "crds/oxideoldies.yaml").write_text("kind: CustomResourceDefinition\n")

    assert stale_files(tmp_path, FILES) == ["crds/oxideoldies.yaml"]
    assert write_files(tmp_path, FILES) == ["crds/oxideoldies.yaml"]
    assert not (tmp_path / "crds/oxideoldies.yaml").exists()
