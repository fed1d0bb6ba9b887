"""Signed tokens as credentials."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ragcache.errors import ConfigError
from ragcache.gateway.tokens import SignedTokens

from .conftest import Served, served, settings_of

ISSUER, AUDIENCE = "https://issuer.example.test", "ragcache"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str, algorithm: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if algorithm == "RS256" else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "alg": algorithm, "use": "sig"}


@pytest.fixture(scope="module")
def jwks(tmp_path_factory):
    path = tmp_path_factory.mktemp("issuer") / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk(RSA, "r1", "RS256"), jwk(CURVE, "e1", "ES256")]}))
    return path


@pytest.fixture(scope="module")
def url(jwks, postgres, _upstream):
    given = {"jwks_file": jwks, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with served(settings_of(_upstream, postgres, jwks.parent, gateway=given)) as address:
        yield address


@pytest.fixture
def gateway(url, upstream):
    return Served(url, keys={}, tenants={})


def token(key: Any = RSA, *, kid: Any = "r1", algorithm: str = "RS256", **changes: Any) -> str:
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": int(time.time()) + 60,
        "sub": "ada",
        "tenant": f"acme-{id(changes)}",
        **changes,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid} if kid else {})


def asked(gateway: Any, credential: str) -> Any:
    gateway.keys["acme"] = credential
    return gateway.ask("Fee?")


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(algorithm: str) -> str:
    body = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 60, "tenant": "acme"}
    return f"{part({'alg': algorithm, 'typ': 'JWT', 'kid': 'r1'})}.{part(body)}"


def signed_with_the_public_key() -> str:
    """Key confusion: HMAC with what everybody knows."""
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = unsigned("HS256")
    return f"{text}.{part(hmac.digest(secret, text.encode(), 'sha256'))}"


@pytest.mark.parametrize(
    ("key", "kid", "algorithm"), [(RSA, "r1", "RS256"), (CURVE, "e1", "ES256")]
)
def test_a_token_of_the_issuer_is_taken_and_its_tenant_served_alone(gateway, key, kid, algorithm):
    mine = token(key, kid=kid, algorithm=algorithm, tenant=f"acme-{time.time_ns()}")
    assert asked(gateway, mine).status_code == 200
    assert asked(gateway, mine).headers["cache-status"].startswith("ragcache; hit")
    other = token(key, kid=kid, algorithm=algorithm, tenant=f"globex-{time.time_ns()}")
    assert asked(gateway, other).headers["cache-status"].startswith("ragcache; fwd=miss")


def test_principals_of_a_tenant_are_told_apart(gateway):
    tenant = f"acme-{time.time_ns()}"
    assert asked(gateway, token(tenant=tenant)).status_code == 200
    assert "fwd=miss" in asked(gateway, token(tenant=tenant, sub="bob")).headers["cache-status"]
    assert "hit" in asked(gateway, token(tenant=tenant)).headers["cache-status"]


@pytest.mark.parametrize(
    "made",
    [
        lambda: token(exp=int(time.time()) - 60),
        lambda: token(exp=None),
        lambda: token(aud="another"),
        lambda: token(aud=None),
        lambda: token(iss="https://other.example.test"),
        lambda: token(iss=None),
        lambda: token(nbf=int(time.time()) + 600),
        lambda: token(STRANGER),
        lambda: token(kid="unknown"),
        lambda: token(kid=None),
        lambda: token(CURVE, kid="r1", algorithm="ES256"),
        lambda: token(algorithm="RS512"),
        lambda: unsigned("none") + ".",
        lambda: unsigned("None") + ".",
        lambda: unsigned("RS256") + ".",
        signed_with_the_public_key,
        lambda: token()[:-4],
        lambda: "a.b.c",
        lambda: "..",
    ],
)
def test_any_other_token_is_401(gateway, upstream, made):
    response = asked(gateway, made())
    assert response.status_code == 401, response.text
    assert response.json()["error"]["type"] == "authentication_error"
    assert not upstream.bodies


@pytest.mark.parametrize("tenant", [None, "", " ", 7, ["acme"], "a\x00b", "x" * 300])
def test_a_token_without_a_tenant_is_403(gateway, upstream, tenant):
    response = asked(gateway, token(tenant=tenant))
    assert (response.status_code, response.json()["error"]["code"]) == (403, "no_tenant")
    assert not upstream.bodies


@pytest.mark.parametrize(
    "changed",
    [
        {"algorithms": ["none"]},
        {"algorithms": ["HS256"]},
        {"algorithms": []},
        {"issuer": ""},
        {"audience": ""},
    ],
)
def test_unsafe_settings_are_refused(jwks, changed):
    options = {"issuer": ISSUER, "audience": AUDIENCE, "algorithms": ["RS256"], **changed}
    with pytest.raises(ConfigError):
        SignedTokens(jwks, **options)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}']
)
def test_a_file_without_usable_keys_is_refused(tmp_path, text):
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="JWKS"):
        SignedTokens(path, issuer=ISSUER, audience=AUDIENCE, algorithms=["RS256"])
