"""Settings of the default models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from sampler.checks import check_choice, check_flags, check_numbers
from sampler.errors import ConfigError


@dataclass(frozen=True)
class ModelConfig:
    """What `make_model` and `make_q_model` build.

    Images go through a convolutional encoder; everything else is concatenated to one vector and
    goes through an MLP. Raises ConfigError for a setting that cannot work.
    """

    encoder: Literal["auto", "nature", "impala", "mlp"] = "auto"
    """Encoder of images: nature (three convolutions), impala (deep residual), mlp (flattened);
    auto: nature, or three 3x3 convolutions where an image is too small for it."""
    image_features: int = 512
    """Outputs of each image's encoder."""
    hidden: tuple[int, ...] | None = None
    """Widths of the MLP's layers; None: 64 64 for policies, 128 128 for Q-networks."""
    activation: Literal["tanh", "relu", "silu"] | None = None
    """Of the MLP; None: tanh for policies, relu for Q-networks."""
    core: Literal["lstm", "gru"] | None = None
    """Recurrent core between the encoders and the heads; None: no memory."""
    core_size: int | None = None
    """Units of the core; None: 512 where there are images, 128 otherwise."""
    separate_value: bool | None = None
    """Give the value an encoder and a core of its own; None: where there are no images."""
    previous_inputs: bool | None = None
    """Feed the core with the previous action and reward; None: for Q-networks with a core."""
    bounded_actions: Literal["clipped", "squashed"] = "clipped"
    """How a Gaussian policy keeps to the bounds of a Box: clipped on the way into the environment,
    or squashed by tanh."""
    initial_log_std: float = 0.0
    """Logarithm of the Gaussian's standard deviation at the start, in units of half the range of a
    bounded dimension."""
    state_dependent_std: bool = False
    """Predict the standard deviation from the observation, not one for all of them."""
    dueling: bool = True
    """Split Q-values into a state value and advantages (Wang et al. 2016)."""
    head_size: int | None = None
    """Width of the hidden layer in each dueling stream; None: 512 where there are images, 128
    otherwise."""
    normalize_observations: bool = False
    """Normalize float vectors by their running mean and variance, clipped at +-10."""

    def __post_init__(self) -> None:
        check_choice(self, "encoder", ("auto", "nature", "impala", "mlp"))
        check_choice(self, "activation", ("tanh", "relu", "silu", None))
        check_choice(self, "core", ("lstm", "gru", None))
        check_choice(self, "bounded_actions", ("clipped", "squashed"))
        check_numbers(self, "image_features", whole=True, least=1)
        check_numbers(self, "core_size", "head_size", whole=True, least=1, optional=True)
        check_numbers(self, "initial_log_std")
        check_choice(self, "separate_value", (True, False, None))
        check_choice(self, "previous_inputs", (True, False, None))
        check_flags(self, "state_dependent_std", "dueling", "normalize_observations")
        if self.hidden is not None and not all(
            isinstance(width, int) and width >= 1 for width in self.hidden
        ):
            raise ConfigError(f"hidden={self.hidden} must hold whole numbers of at least 1")
        if self.previous_inputs and not self.core:
            raise ConfigError("previous_inputs=True needs a core; set core='lstm' or 'gru'")

    def resolved(self, images: bool, q_network: bool) -> ModelConfig:
        """This configuration with every None replaced by its default.

        images: whether some observations go through a convolutional encoder.

        Policy and value of small networks on vectors are kept apart: their gradients differ in
        scale and disturb each other, and a second network costs little. This is what the published
        PPO settings for classic control do (64 64 tanh). On images the encoder is shared, as in the
        papers, because it takes most of the time.
        """
        return replace(
            self,
            hidden=_default(self.hidden, (128, 128) if q_network else (64, 64)),
            activation=_default(self.activation, "relu" if q_network else "tanh"),
            core_size=_default(self.core_size, 512 if images else 128),
            head_size=_default(self.head_size, 512 if images else 128),
            separate_value=_default(self.separate_value, not images) and not q_network,
            previous_inputs=_default(self.previous_inputs, q_network and self.core is not None),
        )


def _default(value: Any, default: Any) -> Any:
    return default if value is None else value
