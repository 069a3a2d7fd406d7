"""Traffic that finds its own way: canaries, tests, bandits and shadows, through the front door."""

import itertools
import time

import pytest

from servers import PROJECT, TENANT

PLACE = f"/v1/tenants/{TENANT}/projects/{PROJECT}/endpoints"
NUMBERS = itertools.count()


@pytest.fixture
def platform(target):
    if target.prefix == "":
        pytest.skip("the edge has one variant of everything")
    return target


class Endpoint:
    """An endpoint of two versions of one model."""

    def __init__(self, platform, **spec):
        self.client = platform.server.client(platform.token)
        self.platform, self.name = platform, f"traffic-{next(NUMBERS)}"
        variants = [{"name": "main", "model": "simple", "version": 1},
                    {"name": "next", "model": "simple", "version": 2} | spec.pop("next", {})]
        made = self.client.put(f"{PLACE}/{self.name}", json={"spec": {"variants": variants} | spec})
        assert made.status_code == 200, made.text

    def ask(self, count):
        """The variant and the id of every answer."""
        tensor = {"shape": [1, 16], "datatype": "INT32", "data": [1] * 16}
        body = {"inputs": [tensor | {"name": "INPUT0"}, tensor | {"name": "INPUT1"}]}
        answers = []
        for _ in range(count):
            answer = self.platform.request("POST", f"/v2/models/{self.name}/infer", json=body)
            assert answer.status_code == 200, answer.text
            parameters = answer.json()["parameters"]
            answers.append((parameters["variant"], parameters.get("prediction_id")))
        return answers

    def report(self, outcomes):
        """Reports values by id."""
        outcomes = list(outcomes)
        for start in range(0, len(outcomes), 500):
            part = [{"prediction": id, "value": value} for id, value in outcomes[start:start + 500]]
            answer = self.client.post(f"{PLACE}/{self.name}/outcomes", json={"outcomes": part})
            assert answer.status_code == 200, answer.text

    def get(self, rest=""):
        answer = self.client.get(f"{PLACE}/{self.name}{rest}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def traffic(self):
        return self.get("/traffic")

    def until(self, what, within=20):
        """Waits for the judge."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            traffic = self.traffic()
            if what(traffic):
                return traffic
            time.sleep(0.1)
        raise AssertionError(f"it did not happen: {traffic}")

    def events(self):
        """What was told of it, in order."""
        page = self.client.get("/v1/events", params={"type": "falaj.endpoint.", "last": "true", "limit": 1000})
        found = [event for event in page.json()["items"] if event["data"]["name"] == self.name]
        return [event["type"].removeprefix("falaj.") for event in found]


def canary(**more):
    steps = [{"share": 0.5, "min_requests": 10}, {"share": 0.9, "min_requests": 10}]
    return {"canary": {"variant": "next", "steps": steps} | more}


def test_a_canary_advances_and_takes_over(platform):
    endpoint = Endpoint(platform, strategy=canary(errors=[{"at_most": 0.05}]))
    assert {share["name"]: share["share"] for share in endpoint.traffic()["variants"]} == {"main": 0.5, "next": 0.5}
    endpoint.ask(60)
    traffic = endpoint.until(lambda now: now["canary"] and now["canary"]["step"] == 2)
    assert traffic["decided"]["event"] == "endpoint.advanced"
    assert {share["name"]: round(share["share"], 3) for share in traffic["variants"]} == {"main": 0.1, "next": 0.9}
    endpoint.ask(60)
    traffic = endpoint.until(lambda now: now["strategy"] is None)
    assert traffic["decided"]["event"] == "endpoint.promoted"
    assert [variant["name"] for variant in traffic["variants"]] == ["next"]
    assert endpoint.get()["revision"] == 2
    assert {variant for variant, _ in endpoint.ask(20)} == {"next"}
    assert endpoint.events() == ["endpoint.deployed", "endpoint.advanced", "endpoint.promoted"]


def test_a_canary_with_bad_outcomes_is_taken_away(platform):
    # Nothing is decided before outcomes are there, however long the questions take.
    quality = {"design": {"effect": 0.1, "minimum": 20}, "max_drop": 0.05, "prove": True}
    endpoint = Endpoint(platform, strategy=canary(quality=quality))
    answers = endpoint.ask(300)
    assert all(id for _, id in answers)
    endpoint.report((id, 1.0 if variant == "main" else 0.0) for variant, id in answers)
    traffic = endpoint.until(lambda now: now["strategy"] is None)
    assert traffic["decided"]["event"] == "endpoint.rolled-back", traffic
    assert traffic["decided"]["why"]["rule"] == "quality"
    assert {variant for variant, _ in endpoint.ask(20)} == {"main"}


def test_a_test_tells_which_is_better(platform):
    test = {"test": {"control": "main", "outcome": "rate", "then": "promote", "design": {"effect": 0.2}}}
    endpoint = Endpoint(platform, strategy=test)
    answers = endpoint.ask(400)
    chance = itertools.cycle(range(10))
    endpoint.report((id, float(next(chance) < (2 if variant == "main" else 8))) for variant, id in answers)
    traffic = endpoint.until(lambda now: now["strategy"] is None)
    assert traffic["decided"]["event"] == "endpoint.promoted"
    assert traffic["decided"]["why"]["better"] == "next"
    assert [variant["name"] for variant in traffic["variants"]] == ["next"]
    # What came late, of what no longer runs, counts for nobody.
    endpoint.report([(answers[0][1], 1.0)])


def test_an_outcome_that_the_test_cannot_take_is_refused_by_its_place(platform):
    test = {"test": {"control": "main", "outcome": "rate", "design": {"effect": 0.2}}}
    endpoint = Endpoint(platform, strategy=test)
    outcomes = [{"prediction": id, "value": value} for (_, id), value in zip(endpoint.ask(2), [1.0, 0.5])]
    answer = endpoint.client.post(f"{PLACE}/{endpoint.name}/outcomes", json={"outcomes": outcomes})
    assert answer.status_code == 400 and "outcomes[1].value" in answer.text, answer.text
    assert all(variant["outcomes"] == 0 for variant in endpoint.traffic()["variants"])


def test_a_bandit_goes_where_it_earns(platform):
    endpoint = Endpoint(platform, strategy={"bandit": {"reward": "binary", "floor": 0.05}})
    answers = endpoint.ask(200)
    endpoint.report((id, float(variant == "next")) for variant, id in answers)
    reported = endpoint.client.get(f"{PLACE}/{endpoint.name}/outcomes").json()["outcomes"]
    assert {(one["prediction"], one["value"]) for one in reported} == {
        (id, float(variant == "next")) for variant, id in answers}
    asked = {"prediction": answers[7][1]}
    [one] = endpoint.client.get(f"{PLACE}/{endpoint.name}/outcomes", params=asked).json()["outcomes"]
    assert one["row"] == 0 and one["value"] == float(answers[7][0] == "next") and one["at"]
    traffic = endpoint.until(lambda now: now["decided"] is not None)
    assert traffic["decided"]["event"] == "endpoint.shared"
    shares = {variant["name"]: variant["share"] for variant in traffic["variants"]}
    assert shares["next"] > 0.9 and shares["main"] >= 0.05
    later = [variant for variant, _ in endpoint.ask(100)]
    assert later.count("next") > 75


def test_a_shadow_is_asked_and_never_heard(platform):
    endpoint = Endpoint(platform, next={"shadow": 1.0, "weight": 0})
    assert {variant for variant, _ in endpoint.ask(40)} == {"main"}
    traffic = endpoint.until(lambda now: now["shadows"].get("next", {}).get("compared", 0) >= 40)
    shadow = traffic["shadows"]["next"]
    assert shadow["failed"] == 0 and set(shadow["outputs"]) == {"OUTPUT0", "OUTPUT1"}
    shares = {variant["name"]: variant["share"] for variant in traffic["variants"]}
    assert shares == {"main": 1.0, "next": 0.0}


def test_a_version_by_its_number_counts_for_nobody(platform):
    endpoint = Endpoint(platform, strategy=canary())
    tensor = {"shape": [1, 16], "datatype": "INT32", "data": [1] * 16}
    body = {"inputs": [tensor | {"name": "INPUT0"}, tensor | {"name": "INPUT1"}]}
    for _ in range(30):
        path = f"/v2/models/{endpoint.name}/versions/2/infer"
        assert platform.request("POST", path, json=body).status_code == 200
    endpoint.ask(1)
    traffic = endpoint.until(lambda now: sum(variant["requests"] for variant in now["variants"]) > 0)
    assert sum(variant["requests"] for variant in traffic["variants"]) == 1


@pytest.mark.parametrize("spec, field", [
    ({"strategy": {"canary": {"variant": "other", "steps": [{"share": 0.1}]}}}, "strategy.canary.variant"),
    ({"strategy": {"canary": {"variant": "next", "steps": [{"share": 7}]}}}, "strategy.canary.steps[0].share"),
    ({"strategy": {"bandit": {"reward": "binary", "floor": 0.9}}}, "strategy.bandit.floor"),
    ({"strategy": {"test": {"control": "main", "design": {"effect": 0}}}}, "strategy.test.design.effect"),
])
def test_what_cannot_work_is_refused_by_its_field(platform, spec, field):
    client = platform.server.client(platform.token)
    variants = [{"name": "main", "model": "simple", "version": 1}, {"name": "next", "model": "simple", "version": 2}]
    answer = client.put(f"{PLACE}/refused", json={"spec": {"variants": variants} | spec})
    assert answer.status_code == 400 and f"`{field}`" in answer.text, answer.text
