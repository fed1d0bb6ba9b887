"""`ragcache warm`: what another process found hot is sent ahead, under the new system text."""

from __future__ import annotations

import json

import pytest

from tests.doubles.upstream import Reply


@pytest.fixture
def ready(cli, upstream):
    """The command line with a fake provider."""
    upstream.script = lambda body: Reply(text="It is in the list.")
    cli.env |= {
        "RAGCACHE_API__BASE_URL": upstream.base_url,
        "RAGCACHE_MODEL__NAME": "fake",
        "RAGCACHE_EMBEDDING__MODEL": "",
        "RAGCACHE_TELEMETRY__RECORD": "false",
        "RAGCACHE_BUDGETS__STORE_MS": "10000",
        "RAGCACHE_BUDGETS__PUT_MS": "10000",
        "RAGCACHE_SECURITY__SIGNING_KEYS": '{"k": "a secret of the tests"}',
        "RAGCACHE_STORE__MAINTAIN_EVERY_S": "0",
    }
    return cli


def test_what_another_process_found_hot_is_sent_under_the_new_text(
    ready, upstream, tmp_path, tenant
):
    rows = [
        {
            "question": f"What does ship {n} pay?",
            "system": "The old text.",
            "documents": [f"The fee of port {n % 2} is 80 per day. " * 9],
        }
        for n in range(50)
    ]
    file, system = tmp_path / "prompts.jsonl", tmp_path / "system.txt"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    system.write_text("The new text.")
    assert ready("batch", file, "--tenant", tenant, "--json").json["failed"] == 0
    before = len(upstream.bodies)
    told = ready("warm", "--tenant", tenant, "--system", system, "--json").json
    assert (told["wanted"], told["sent"], told["failed"]) == (2, 2, 0)
    assert [b["messages"][0]["content"] for b in upstream.bodies[before:]] == ["The new text."] * 2
    assert ready("warm", "--tenant", tenant, "--limit", 1, "--json").json["sent"] == 1
    assert upstream.bodies[-1]["messages"][0]["content"] == "The old text."
    upstream.script = lambda body: Reply(status=400)
    assert ready("warm", "--tenant", tenant, "--json", code=1).json["failed"] == 2


def test_a_tenant_of_whom_nothing_is_known_is_told_so(ready, upstream, tenant):
    assert "nothing is known to be hot" in ready("warm", "--tenant", tenant).out
    assert upstream.bodies == []
