"""The reference page tells every field with its limits, in the words that the apiserver enforces."""

from capox.api.crdgen import generated_files
from capox.api.v1alpha1 import ConditionType, Reason

PAGE = generated_files()["docs/reference/api.md"]


def row(field: str) -> str:
    """Give the first row of the page's tables whose first cell is a field."""
    return next(line for line in PAGE.splitlines() if line.startswith(f"| `{field}` |"))


def test_limits_are_told() -> None:
    """Ranges, choices, lengths and counts stand beside their fields."""
    assert "| whole number | yes | 1 to 254 |" in row("spec.nCPUs")
    assert "| quantity | yes | 1Gi to 1536Gi |" in row("spec.memory")
    assert "| `512`, `2048`, `4096` |" in row("spec.dataDisks[].blockSize")
    assert "| `v4`, `v6` |" in row("spec.ipType")
    assert "at most 100 entries; each a name on the rack or an ID" in row("spec.sshPublicKeys")
    assert "at most 256 entries; each at most 63 characters" in row("spec.template.metadata.labels")


def test_required_fields_are_marked() -> None:
    """The table says which fields an object cannot do without."""
    assert "| text | yes |" in row("spec.project")
    assert "| text |  |" in row("spec.vpc")


def test_a_template_refers_to_its_kind() -> None:
    """The fields of a spec are told once, and the template's table links to them."""
    assert "[OxideCluster spec](#oxidecluster-spec)" in PAGE
    assert "without `providerID`" in PAGE
    assert "spec.template.spec.nCPUs" not in PAGE


def test_every_condition_and_reason_is_told() -> None:
    """Whoever sees a word in `kubectl describe` finds its meaning."""
    for word in [*ConditionType, *Reason]:
        assert f"| `{word}` | {word.meaning} |" in PAGE


def test_tables_are_well_formed() -> None:
    """Each row of a table has as many cells as its head."""
    tables = PAGE.split("\n\n")
    for table in (block for block in tables if block.startswith("| ")):
        counts = {line.replace("\\|", "").count("|") for line in table.splitlines()}
        assert len(counts) == 1, table
