"""A program: links kernels with each kind of argument and result into a folder."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from shm.kernels.base.compiler import compiled
from shm.warm.link import link


@compiled
def added(data: np.ndarray, more: int) -> Any:
    return data[0] + more


@compiled
def total(data: np.ndarray) -> Any:
    result = np.int64(0)
    for i in range(data.shape[0]):
        for j in range(data.shape[1]):
            result += data[i, j]
    return result


@compiled
def is_more(pair: tuple[np.ndarray, int], than: bool) -> Any:
    return pair[0][0] > pair[1] if than else False


@compiled
def three(data: np.ndarray, is_set: bool) -> Any:
    return np.int64(len(data)), is_set, data[0]


@compiled
def put(data: np.ndarray, value: int) -> None:
    data[0] = value


@compiled
def large(data: np.ndarray) -> Any:
    return data[0]


@compiled
def small(data: np.ndarray) -> Any:
    return np.uint32(data[0])


def main() -> None:
    one, yes = np.array([5]), True
    added(one, 1)
    added(np.zeros(1, np.uint8), 1)
    total(np.zeros((1, 1), np.int64))
    is_more((one, 1), yes)
    three(one, yes)
    put(one, 1)
    large(np.ones(1, np.uint64))
    small(one)
    link(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
