"""The parts that every learner shares, and what must hold for every algorithm."""

from __future__ import annotations

import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

from sampler.config import SamplerConfig
from sampler.errors import ConfigError
from sampler.learner.algorithms.a2c import A2C, A2CConfig
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.learner.algorithms.impala import IMPALA, IMPALAConfig
from sampler.learner.algorithms.ppo import PPO, PPOConfig
from sampler.learner.algorithms.stale_steps import PATIENCE
from sampler.learner.base import Explores, Learner, Replays
from sampler.learner.config import LearnerConfig
from sampler.learner.precision import resolve_precision
from sampler.models import ModelConfig, make_model
from sampler.models.device import choose_device, has_native_bfloat16

DISCRETE = gym.spaces.Discrete(4)
CONTINUOUS = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
NESTED = gym.spaces.Dict({"a": gym.spaces.Discrete(3, start=1), "b": CONTINUOUS})
SPACES = {
    "discrete": DISCRETE,
    "multi": gym.spaces.MultiDiscrete([2, 3]),
    "binary": gym.spaces.MultiBinary(3),
    "continuous": CONTINUOUS,
    "nested": NESTED,
}
ALGORITHMS = {
    "appo": (APPO, APPOConfig()),
    "appo_gae": (APPO, APPOConfig(with_vtrace=False, minibatches=2, epochs=2)),
    "ppo": (PPO, PPOConfig()),
    "impala": (IMPALA, IMPALAConfig()),
    "a2c": (A2C, A2CConfig()),
}
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


def learner_of(name, model, action_space, **changes):
    kind, config = ALGORITHMS[name]
    return kind(model, OBS, action_space, replace(config, **changes), device="cpu")


def no_publish() -> None:
    return None


def weights(learner) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).clone() for p in learner.model.parameters()])


@pytest.mark.parametrize("units", [0, 4])
@pytest.mark.parametrize("space", SPACES)
def test_zero_lag_gives_a_ratio_of_one(tiny_model, random_fields, batch_from, space, units):
    action_space = SPACES[space]
    model = tiny_model(action_space, units)
    fields = random_fields(model, action_space)
    learner = learner_of("appo", model, action_space)
    part = learner.rollout(batch_from(fields, action_space))
    now = learner.predict(part)
    assert part.real.sum() > part.real.numel() // 2
    torch.testing.assert_close(
        now.log_ratios.exp(), torch.ones_like(now.log_ratios), rtol=0, atol=1e-5
    )
    torch.testing.assert_close(
        now.values[:, :-1][part.real], part.values[part.real], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("units", [0, 4])
def test_every_algorithm_learns_from_every_space(
    tiny_model, random_fields, batch_from, algorithm, space, units
):
    action_space = SPACES[space]
    model = tiny_model(action_space, units)
    learner = learner_of(algorithm, model, action_space)
    before = weights(learner)
    published = []
    metrics = learner.update(
        batch_from(random_fields(model, action_space), action_space),
        lambda: published.append(weights(learner)),
    )
    after = weights(learner)
    assert not torch.equal(before, after)
    assert torch.equal(published[-1], after)
    assert all(np.isfinite(value) for value in metrics.values()), metrics
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "explained_variance"):
        assert f"losses/{name}" in metrics
    assert metrics["perf/policy_lag_max"] == 0
    assert metrics["charts/learning_rate"] == learner.config.learning_rate


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("units", [0, 4])
def test_action_masks_reach_the_learner(tiny_model, random_fields, batch_from, algorithm, units):
    model = tiny_model(DISCRETE, units)
    fields = random_fields(model, DISCRETE, masked=True)
    learner = learner_of(algorithm, model, DISCRETE)
    part = learner.rollout(batch_from(fields, DISCRETE))
    assert learner.predict(part).log_ratios.abs().max() < 1e-5
    metrics = learner.update(batch_from(fields, DISCRETE), no_publish)
    assert all(np.isfinite(value) for value in metrics.values())


def splice(fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same rows with one more invalid step in each, after an episode's end (or in front)."""
    result = {}
    rows, steps = fields["rewards"].shape
    where = []
    for row in range(rows):
        ends = np.nonzero(~fields["mask"][row])[0]
        where.append(int(ends[0]) if len(ends) else None)
    assert all(w is not None for w in where), "choose a seed that ends an episode in every row"
    for name, array in fields.items():
        if name in ("lane_id", "rnn_state"):
            result[name] = array
            continue
        longer = [
            np.concatenate([array[row, : w + 1], array[row, w : w + 1], array[row, w + 1 :]])
            for row, w in enumerate(where)
        ]
        result[name] = np.stack(longer)
    invalid = ~result["mask"]
    for name in ("log_probs", "values", "rewards"):
        result[name] = result[name].copy()
        result[name][invalid] = np.nan
    assert result["rewards"].shape == (rows, steps + 1)
    return result


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("units", [0, 4])
def test_spliced_invalid_steps_change_nothing(
    tiny_model, random_fields, batch_from, algorithm, units
):
    # A memory that the spliced step does not touch is needed for equality: the trace model's does
    # not change where its input is repeated only if it restarts right after, which it does.
    results = []
    for change in (lambda fields: fields, splice):
        model = tiny_model(DISCRETE, units)
        fields = change(random_fields(model, DISCRETE, rows=4, steps=12, seed=4))
        # one pass and one minibatch: shuffling depends on the number of steps
        changes = {} if algorithm in ("impala", "a2c") else {"epochs": 1, "minibatches": 1}
        learner = learner_of(algorithm, model, DISCRETE, **changes)
        model_drift(learner)
        metrics = learner.update(batch_from(fields, DISCRETE), no_publish)
        results.append((metrics, weights(learner)))
    (plain, after_plain), (spliced, after_spliced) = results
    for name in plain:
        if name.startswith("losses/"):
            assert spliced[name] == pytest.approx(plain[name], abs=1e-5), name
    torch.testing.assert_close(after_spliced, after_plain, rtol=0, atol=1e-6)


def model_drift(learner) -> None:
    """Move the weights a little, as if the batch were old."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_resumed_state_continues_bit_for_bit(tiny_model, random_fields, batch_from, algorithm):
    batches = [
        batch_from(random_fields(tiny_model(DISCRETE, 4), DISCRETE, seed=seed), DISCRETE)
        for seed in range(4)
    ]
    changes = {"normalize_rewards": True}
    straight = learner_of(algorithm, tiny_model(DISCRETE, 4), DISCRETE, **changes)
    for batch in batches[:2]:
        straight.update(batch, no_publish)
    state = straight.state_dict()
    saved = {"state": torch.load(_bytes(state), weights_only=True)}["state"]
    expected = [straight.update(batch, no_publish) for batch in batches[2:]]

    resumed = learner_of(algorithm, tiny_model(DISCRETE, 4, seed=9), DISCRETE, **changes)
    resumed.load_state_dict(saved)
    got = [resumed.update(batch, no_publish) for batch in batches[2:]]
    assert got == expected
    assert torch.equal(weights(resumed), weights(straight))
    assert (resumed.batches, resumed.updates) == (straight.batches, straight.updates)


def _bytes(state):
    import io

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


def test_state_of_another_algorithm_or_model_is_refused(tiny_model):
    state = learner_of("appo", tiny_model(DISCRETE), DISCRETE).state_dict()
    with pytest.raises(ConfigError, match="the checkpoint is of APPO, not IMPALA"):
        learner_of("impala", tiny_model(DISCRETE), DISCRETE).load_state_dict(state)
    with pytest.raises(ConfigError, match="does not fit this model"):
        learner_of("appo", tiny_model(DISCRETE, 4), DISCRETE).load_state_dict(state)


def test_old_steps_get_no_weight_and_are_counted(tiny_model, random_fields, batch_from):
    model = tiny_model(DISCRETE)
    fields = random_fields(model, DISCRETE)
    fields["policy_version"][:2] = 1
    learner = learner_of("appo", model, DISCRETE, max_policy_lag=4)
    learner.version = 6
    part = learner.rollout(batch_from(fields, DISCRETE))
    assert not part.valid[:2].any()
    assert torch.equal(part.valid[2:], part.real[2:])
    assert learner.stale.count == int(part.real[:2].sum())
    metrics = learner.update(batch_from(fields, DISCRETE), no_publish)
    assert metrics["perf/stale_steps"] == 2 * int(part.real[:2].sum())
    assert metrics["perf/policy_lag_max"] == 5
    assert metrics["perf/policy_lag_min"] == 3
    assert metrics["perf/valid_fraction"] == pytest.approx(float(part.valid.float().mean()))


def test_a_lag_bound_that_leaves_out_most_steps_is_said_once(
    tiny_model, random_fields, batch_from, caplog
):
    model = tiny_model(DISCRETE)
    fields = random_fields(model, DISCRETE)
    fields["policy_version"][:3] = 1  # three of four rows
    learner = learner_of("appo", model, DISCRETE, max_policy_lag=4)
    learner.version = 6
    for _ in range(3 * PATIENCE):
        learner.update(batch_from(fields, DISCRETE), no_publish)
    (record,) = caplog.records
    assert record.name == "fastrl"
    assert re.search(r"max_policy_lag=4 leaves out \d\d% of the steps", record.getMessage())


def test_a_lag_bound_that_leaves_out_few_steps_is_not_said(
    tiny_model, random_fields, batch_from, caplog
):
    model = tiny_model(DISCRETE)
    fields = random_fields(model, DISCRETE)
    fields["policy_version"][:1] = 1
    learner = learner_of("appo", model, DISCRETE, max_policy_lag=4)
    learner.version = 6
    for _ in range(2 * PATIENCE):
        learner.update(batch_from(fields, DISCRETE), no_publish)
    assert not caplog.records


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_batch_without_a_valid_step_changes_no_weight(
    tiny_model, random_fields, batch_from, algorithm
):
    model = tiny_model(DISCRETE)
    fields = random_fields(model, DISCRETE)
    fields["mask"][:] = False
    learner = learner_of(algorithm, model, DISCRETE)
    before = weights(learner)
    learner.update(batch_from(fields, DISCRETE), no_publish)
    assert torch.equal(weights(learner), before)
    assert learner.updates == 0


def test_rewards_are_scaled_then_clipped(tiny_model, random_fields, batch_from):
    model = tiny_model(DISCRETE)
    fields = random_fields(model, DISCRETE)
    learner = learner_of("appo", model, DISCRETE, reward_scale=2.0, reward_clip=1.0)
    part = learner.rollout(batch_from(fields, DISCRETE))
    expected = np.where(fields["mask"], np.clip(2 * fields["rewards"], -1, 1), 0)
    np.testing.assert_allclose(part.rewards.numpy(), expected, rtol=1e-6)


def test_normalized_rewards_follow_a_lane_in_time(tiny_model, random_fields, batch_from):
    """Two rows of one lane in the wrong order give what they give in the right one."""
    model = tiny_model(DISCRETE)
    fields = random_fields(model, DISCRETE, rows=2)
    fields["lane_id"][:] = 0
    fields["episode_id"][1] += 100
    states = []
    for order in ([0, 1], [1, 0]):
        learner = learner_of("appo", model, DISCRETE, normalize_rewards=True)
        learner.rollout(batch_from({n: a[order] for n, a in fields.items()}, DISCRETE))
        states.append(learner.reward_scaler.state_dict())
    for name in states[0]:
        torch.testing.assert_close(states[0][name], states[1][name])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_observation_statistics_change_between_batches_only(random_fields, batch_from, algorithm):
    """A batch is learned from with the statistics that it was acted with; only the very first one
    is counted beforehand. Each real step's observation counts once."""
    model = make_model(OBS, DISCRETE, ModelConfig(normalize_observations=True))
    model.units = 0
    changes = {} if algorithm in ("impala", "a2c") else {"epochs": 1, "minibatches": 1}
    learner = learner_of(algorithm, model, DISCRETE, **changes)
    count = next(buffer for name, buffer in model.named_buffers() if name.endswith("count"))
    seen = 0
    for seed in range(3):
        fields = random_fields(model, DISCRETE, seed=seed)
        published = []
        metrics = learner.update(
            batch_from(fields, DISCRETE),
            lambda published=published: published.append(count.clone()),
        )
        seen += int(fields["mask"].sum())
        assert torch.equal(published[-1], count)
        assert (count == seen).all()
        if seed:
            assert metrics["losses/approx_kl"] < 1e-9


def test_learning_rate_falls_linearly(tiny_model):
    learner = learner_of("ppo", tiny_model(DISCRETE), DISCRETE, learning_rate=0.1)
    rates = []
    for steps in (0, 25, 100):
        learner.set_progress(steps, 100)
        rates.append(learner.learning_rate)
    assert rates == pytest.approx([0.1, 0.075, 0.0])
    learner.set_progress(25, None)
    assert learner.learning_rate == pytest.approx(0.1)


@pytest.mark.parametrize("norm", [1e-3, 0.0])
def test_gradient_norm_is_clipped(tiny_model, norm):
    learner = learner_of("a2c", tiny_model(DISCRETE), DISCRETE, max_grad_norm=norm)
    loss = sum((100 * p).square().sum() for p in learner.model.parameters())
    assert learner.step(loss, {})
    gradients = [p.grad for p in learner.model.parameters()]
    size = float(torch.cat([g.reshape(-1) for g in gradients]).norm())
    assert size == pytest.approx(norm, rel=1e-4) if norm else size > 1000
    assert learner.metrics.means()["losses/grad_norm"] > 1000


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (APPOConfig, {"learning_rate": 0.0}, "learning_rate=0.0 must be a number greater than 0"),
        (APPOConfig, {"gamma": 1.5}, "gamma=1.5 must be a number of at least 0 and of at most 1"),
        (APPOConfig, {"clip": float("nan")}, "clip=nan must be a number greater than 0"),
        (APPOConfig, {"minibatches": 0}, "minibatches=0 must be a whole number of at least 1"),
        (APPOConfig, {"publish_every": "week"}, "publish_every='week' is not"),
        (PPOConfig, {"optimiser": "sgd"}, "optimiser='sgd' is not one of"),
        (PPOConfig, {"value_clip": -1.0}, "value_clip=-1.0 must be a number of at least 0"),
        (IMPALAConfig, {"reduction": "max"}, "reduction='max' is not"),
        (APPOConfig, {"learning_rate": "fast"}, "learning_rate='fast' must be a number"),
        (APPOConfig, {"entropy_coef": float("inf")}, "entropy_coef=inf must be a number"),
        (PPOConfig, {"epochs": 1.5}, "epochs=1.5 must be a whole number"),
        (A2CConfig, {"normalize_advantages": "no"}, "'no' must be True or False"),
        (A2CConfig, {"lambda_": -0.1}, "lambda_=-0.1 must be a number of at least 0"),
    ],
)
def test_bad_settings_are_refused(config, changes, message):
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_a_bound_may_be_infinite():
    config = APPOConfig(clip_rho=float("inf"), value_clip=float("inf"), max_grad_norm=float("inf"))
    assert config.clip_rho == float("inf")
    with pytest.raises(ConfigError, match="clip_rho=nan"):
        replace(config, clip_rho=float("nan"))


def test_unsuitable_samplers_are_refused(tiny_model):
    sampler = SamplerConfig(env="CartPole-v1", workers=1, envs_per_worker=2, batch=2, rollout=4)
    with pytest.raises(ConfigError, match="set sync=True"):
        learner_of("ppo", tiny_model(DISCRETE), DISCRETE).check_sampler(sampler)
    with pytest.raises(ConfigError, match="minibatches=3 exceeds the 2 rows"):
        learner_of("appo", tiny_model(DISCRETE), DISCRETE, minibatches=3).check_sampler(sampler)
    wide = replace(sampler, envs_per_worker=8, batch=8)
    with pytest.raises(ConfigError, match=r"minibatches=3 does not divide the 8 rows.*use 2 or 4"):
        learner_of("appo", tiny_model(DISCRETE), DISCRETE, minibatches=3).check_sampler(wide)
    synchronous = replace(wide, sync=True)
    with pytest.raises(ConfigError, match="minibatches=3 does not divide the 8 rows"):
        learner_of("ppo", tiny_model(DISCRETE, 4), DISCRETE, minibatches=3).check_sampler(
            synchronous
        )
    learner_of("ppo", tiny_model(DISCRETE), DISCRETE, minibatches=3).check_sampler(synchronous)
    with pytest.raises(ConfigError, match="overlap=1"):
        learner_of("impala", tiny_model(DISCRETE), DISCRETE).check_sampler(
            replace(sampler, overlap=1)
        )
    learner_of("ppo", tiny_model(DISCRETE), DISCRETE).check_sampler(replace(sampler, sync=True))


def test_the_base_is_abstract(tiny_model):
    with pytest.raises(TypeError, match=r"abstract method '?update"):
        Learner(tiny_model(DISCRETE), OBS, DISCRETE, LearnerConfig())
    learner = APPO(tiny_model(DISCRETE), OBS, DISCRETE, APPOConfig(), device="cpu")
    assert not isinstance(learner, Explores)
    assert not isinstance(learner, Replays)


def test_device_and_precision(tiny_model):
    model = tiny_model(DISCRETE)
    cpu = torch.device("cpu")
    for device in ("abacus", "meta", "cuda:x", "cuda:-1", "cpu:1000", "cuda:99999999999"):
        with pytest.raises(ConfigError, match=f"device='{device}' is not auto, cpu"):
            choose_device(device)
    with pytest.raises(ConfigError, match="is not there"):
        choose_device("cuda:99")
    with pytest.raises(ConfigError, match="precision='float8' is not"):
        resolve_precision("float8", cpu, model)
    assert resolve_precision("bfloat16", cpu, model) == torch.bfloat16
    assert resolve_precision("auto", cpu, model) == torch.float32  # no convolution to speed up
    convolution = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1))
    native = torch.bfloat16 if has_native_bfloat16(cpu) else torch.float32
    assert resolve_precision("auto", cpu, convolution) == native
