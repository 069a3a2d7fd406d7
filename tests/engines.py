"""A server on one of its two databases."""

import os
import subprocess
import uuid

import pytest

from server import Server

ENGINES = ["sqlite", "postgres"]


class OnEngine(Server):
    def __init__(self, folder, engine, **settings):
        self.database = None
        if engine == "postgres":
            if "FALAJ_TEST_POSTGRES_URL" not in os.environ:
                pytest.skip("FALAJ_TEST_POSTGRES_URL is not set: scripts/with-services sets it")
            self.database = f"falaj_{uuid.uuid4().hex}"
            psql(f"CREATE DATABASE {self.database} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
            base, _, query = os.environ["FALAJ_TEST_POSTGRES_URL"].partition("?")
            settings["FALAJ_DATABASE_URL"] = f"{base.rsplit('/', 1)[0]}/{self.database}?{query}"
        super().__init__(folder, **settings)

    def stop(self):
        super().stop()
        if self.database:
            psql(f"DROP DATABASE {self.database} WITH (FORCE)")
            self.database = None


def psql(statement):
    subprocess.run(["psql", "-q", "-d", os.environ["FALAJ_TEST_POSTGRES_URL"], "-c", statement], check=True,
                   timeout=60)
