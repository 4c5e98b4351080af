"""What the tests of sites and flame share: clients whose call stacks are known."""

import json
import pathlib
import shutil
import subprocess
import tempfile

from cli_support import BUILD, ENVIRONMENT, LIBRARY, CommandTest, memoir

CLIENT = BUILD / "test/integration/sites_client"
FIGURES = ("bytes", "blocks", "allocated", "allocated_blocks")


class SitesTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.files = pathlib.Path(tempfile.mkdtemp(prefix="memoir-test-sites-"))
        self.addCleanup(shutil.rmtree, self.files, ignore_errors=True)

    def start(self, *lines, stacks="all", program=CLIENT):
        client = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT | {"MEMOIR_DIR": str(self.dir), "LD_LIBRARY_PATH": str(LIBRARY), "MEMOIR_STACKS": stacks},
        )
        self.addCleanup(self.end_client, client)
        self.assertEqual(client.stdout.readline(), b"ready\n")
        self.tell(client, *lines)
        return client

    def sites(self, *arguments, check=0, environment=None):
        return memoir("sites", "--dir", self.dir, *arguments, check=check, environment=environment)

    def document(self, *arguments, check=0):
        return json.loads(self.sites("--json", *arguments, check=check).stdout)

    @staticmethod
    def by_function(document):
        return {(row["function"], row["space"]): row for row in document["sites"]}
