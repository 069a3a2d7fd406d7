"""Falaj as these tests see it: a server on one of its two databases, with a client that has a token."""

import os
import subprocess
import uuid

from server import Server

# Everything comes from one address and one principal here; the limits meant for those are set aside.
UNLIMITED = {f"FALAJ_{name}": "1000000" for name in (
    "IDENTITY_FAILURES_BURST", "IDENTITY_FAILURES_PER_MINUTE", "LIMITS_REQUESTS_PER_SECOND", "LIMITS_REQUEST_BURST")}


class Falaj(Server):
    def __init__(self, folder, engine):
        self.database = None
        settings = dict(UNLIMITED)
        if engine == "postgres":
            self.database = f"falaj_mlflow_{uuid.uuid4().hex}"
            psql(f"CREATE DATABASE {self.database} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
            base, _, query = os.environ["FALAJ_TEST_POSTGRES_URL"].partition("?")
            settings["FALAJ_DATABASE_URL"] = f"{base.rsplit('/', 1)[0]}/{self.database}?{query}"
        super().__init__(folder, **settings)

    @property
    def token(self):
        return self.admin_token()

    def client(self, token=None):
        return super().client(token or self.token)

    def stop(self):
        super().stop()
        if self.database:
            psql(f"DROP DATABASE {self.database} WITH (FORCE)")
            self.database = None


def psql(statement):
    subprocess.run(["psql", "-q", "-d", os.environ["FALAJ_TEST_POSTGRES_URL"], "-c", statement], check=True,
                   timeout=60)
