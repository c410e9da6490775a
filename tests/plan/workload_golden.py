#!/usr/bin/env python3
"""The numbers that tests/plan/arrivals_test.cc expects, from the definitions: MT19937-64, SplitMix64, Box-Muller, Marsaglia-Tsang.

Shares no code with plan/workload. Prints the literals.
"""
import math

M = (1 << 64) - 1


class Mt64:  # Matsumoto and Nishimura 2004
    def __init__(self, seed):
        self.s = [seed & M]
        for i in range(1, 312):
            self.s.append((6364136223846793005 * (self.s[-1] ^ (self.s[-1] >> 62)) + i) & M)
        self.i = 312

    def bits(self):
        if self.i == 312:
            for k in range(312):
                x = (self.s[k] & 0xFFFFFFFF80000000) | (self.s[(k + 1) % 312] & 0x7FFFFFFF)
                self.s[k] = self.s[(k + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
            self.i = 0
        x = self.s[self.i]
        self.i += 1
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return (x ^ (x >> 43)) & M

    def unit(self):
        return (self.bits() >> 11) / 2**53


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M
    return x ^ (x >> 31)


def stream(seed, which):
    return Mt64(mix((mix(seed) + which) & M))


def normal(r):
    radius = math.sqrt(-2 * math.log(1 - r.unit()))
    return radius * math.cos(2 * math.pi * r.unit())


def gamma(r, shape):
    if shape < 1:
        larger = gamma(r, shape + 1)
        return larger * (1 - r.unit()) ** (1 / shape)
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal(r)
        v = (1 + c * x) ** 3
        if v > 0 and math.log(1 - r.unit()) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v


def arrivals(count, rate, shape, seed):
    r = stream(seed, 1)
    now, times = 0, []
    for _ in range(count):
        now += gamma(r, shape) / shape / rate
        times.append(now)
    return [t * count / rate / now for t in times]


reference = Mt64(5489)  # the C++ standard: the 10000th of a default-constructed mt19937_64
for _ in range(9999):
    reference.bits()
assert reference.bits() == 9981545732273789042
print("bits", [hex(b) for b in (lambda r: [r.bits() for _ in range(3)])(stream(7, 1))])
print("poisson", arrivals(5, 2, 1, 0))
print("bursts", arrivals(5, 10, 0.25, 42))
r = stream(3, 2)
variance = math.log(2)
print("lognormal:100:1", [max(1, round(100 * math.exp(math.sqrt(variance) * normal(r) - variance / 2))) for _ in range(5)])
