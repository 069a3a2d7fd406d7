"""Falaj as these tests see it: a server on one of its two databases, with a client that has a token."""

from engines import OnEngine

# Everything comes from one address and one principal here; the limits meant for those are set aside.
UNLIMITED = {f"FALAJ_{name}": "1000000" for name in (
    "IDENTITY_FAILURES_BURST", "IDENTITY_FAILURES_PER_MINUTE", "LIMITS_REQUESTS_PER_SECOND", "LIMITS_REQUEST_BURST")}


class Falaj(OnEngine):
    def __init__(self, folder, engine):
        super().__init__(folder, engine, **UNLIMITED)

    @property
    def token(self):
        return self.admin_token()

    def client(self, token=None):
        return super().client(token or self.token)
