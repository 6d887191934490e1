"""Convolution work and activation volume of CIFAR residual networks, from two counts.

CM-DARE publishes only parameters and tensors of its ResNet and Shake-Shake networks (its
"GFLOPs" are 7 x 128 x parameters, not convolution work). Both families have three stages
whose widths double and whose resolution halves, so that the two counts fix the depth of
every stage. Our reconstruction of the Tensor2Tensor networks; it reproduces the published
parameter and tensor counts of all 20 exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

RESOLUTIONS = (32, 16, 8)
STEM_WIDTH = 16
CLASSES = 10
RESNET_WIDTHS = (32, 64, 128)
UNPLACED_RESNET_PARAMETERS = 1696  # constant over the 12 ResNets; not in our reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualNetwork:
    """Blocks per stage, their widths and their branches (Shake-Shake has two)."""

    blocks: tuple[int, int, int]
    widths: tuple[int, int, int]
    branches: int

    @property
    def multiply_adds(self) -> float:
        """Multiply-adds of the blocks' 3x3 convolutions, one sample, forward."""
        return float(
            sum(
                count * self.branches * 2 * 9 * width**2 * side**2
                for count, width, side in zip(
                    self.blocks, self.widths, RESOLUTIONS, strict=True
                )
            )
        )

    @property
    def activations(self) -> float:
        """Elements that the blocks' convolutions put out, one sample, forward."""
        return float(
            sum(
                count * self.branches * 2 * width * side**2
                for count, width, side in zip(
                    self.blocks, self.widths, RESOLUTIONS, strict=True
                )
            )
        )

    @property
    def variables(self) -> tuple[int, ...]:
        """Elements of every variable in the order of creation, moving statistics included.

        A convolution makes a kernel (Shake-Shake: and a bias), its batch norm four vectors.
        Servers take variables in turn, so that this order decides how even their shards
        are: all kernels of a Shake-Shake network fall on every second server.
        """
        biased = self.branches == 2
        sizes = _layer(3, STEM_WIDTH, biased=biased)
        before = STEM_WIDTH
        for count, width in zip(self.blocks, self.widths, strict=True):
            for index in range(count):
                entry = before if index == 0 else width
                if not biased and index == 0:
                    sizes += _layer(entry, width, biased=False, side=1)
                for _ in range(self.branches):
                    sizes += _layer(entry, width, biased=biased)
                    sizes += _layer(width, width, biased=biased)
                if biased and entry != width:
                    half = width // 2
                    sizes += [entry * half, half] * 2 + [width] * 4
            before = width
        return (*sizes, before * CLASSES, CLASSES)


def recognise(parameters: int, tensors: int) -> ResidualNetwork | None:
    """The network with these counts, or None where neither family has one."""
    return _shake_shake(parameters, tensors) or _resnet(parameters, tensors)


def _resnet(parameters: int, tensors: int) -> ResidualNetwork | None:
    depth, rest = divmod(tensors - 14, 6)
    if rest or not 3 <= depth <= 300:
        return None
    for first in range(1, depth - 1):
        for second in range(1, depth - first):
            blocks = (first, second, depth - first - second)
            if _resnet_parameters(blocks) == parameters:
                return ResidualNetwork(blocks=blocks, widths=RESNET_WIDTHS, branches=1)
    return None


def _resnet_parameters(blocks: tuple[int, int, int]) -> int:
    total = _convolution(3, STEM_WIDTH) + UNPLACED_RESNET_PARAMETERS
    before = STEM_WIDTH
    for count, width in zip(blocks, RESNET_WIDTHS, strict=True):
        total += _convolution(before, width, side=1)  # projection of the shortcut
        total += _convolution(before, width) + (2 * count - 1) * _convolution(width, width)
        before = width
    return total + (before + 1) * CLASSES


def _shake_shake(parameters: int, tensors: int) -> ResidualNetwork | None:
    for width in range(8, 257, 8):
        widths = (width, 2 * width, 4 * width)
        fixed_tensors = 6 + 6 * (3 - (width == STEM_WIDTH))
        depth, rest = divmod(tensors - fixed_tensors, 48)
        if rest or depth < 1:
            continue
        if _shake_shake_parameters(depth, widths) == parameters:
            return ResidualNetwork(blocks=(depth,) * 3, widths=widths, branches=2)
    return None


def _shake_shake_parameters(depth: int, widths: tuple[int, int, int]) -> int:
    total = _convolution(3, STEM_WIDTH) + STEM_WIDTH
    before = STEM_WIDTH
    for width in widths:
        if before != width:  # two halves of the shortcut, each with a bias, one batch norm
            total += (before + 1) * width + 2 * width
        first = _convolution(before, width) + width
        total += 2 * (first + (2 * depth - 1) * (_convolution(width, width) + width))
        before = width
    return total + (before + 1) * CLASSES


def _layer(before: int, width: int, *, biased: bool, side: int = 3) -> list[int]:
    return [side**2 * before * width, *([width] if biased else []), *[width] * 4]


def _convolution(before: int, width: int, *, side: int = 3) -> int:
    """Parameters of a convolution without bias and of its batch norm."""
    return side**2 * before * width + 2 * width
