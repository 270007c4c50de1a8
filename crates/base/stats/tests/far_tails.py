"""Tails by quadrature with 32 digits: each line of standard input names a distribution and its arguments."""

import sys

from multiprocessing import Pool

from mpmath import erfc, exp, gamma, log, loggamma, mp, mpf, nstr, pi, sqrt
from mpmath.calculus.quadrature import GaussLegendre

mp.dps = 32
# 24 nodes and weights for the interval from -1 to 1.
NODES = GaussLegendre(mp).calc_nodes(4, 120)


def integral(function, ends):
    """The integral over several panels between neighbouring ends."""
    total = mpf(0)
    for low, high in zip(ends, ends[1:]):
        half, middle = (high - low) / 2, (high + low) / 2
        total += half * sum(weight * function(middle + half * node) for node, weight in NODES)
    return total


def panels(low, high, width):
    count = int((high - low) / width) + 1
    return [low + (high - low) * place / count for place in range(count + 1)]


def normal(x):
    return erfc(x / sqrt(2)) / 2


def normal_range(w, k):
    """The upper tail of the range of k normal variables, as one minus Hartley's form of the lower one."""

    def inside(u):
        return exp(-u * u / 2) * (normal(u - w) - normal(u)) ** (k - 1)

    middle = (1 - 2 * normal(w / 2)) ** k
    return 1 - middle - 2 * k * integral(inside, [w / 2, w / 2 + 9]) / sqrt(2 * pi)


def over_scale(df, peak, widths, tail):
    """The mean of a tail over the estimate of a standard deviation."""
    constant = log(2) + df / 2 * log(df / 2) - loggamma(df / 2)
    width = 1 / sqrt(2 * df)

    def inside(t):
        return exp(constant + df * t - df / 2 * exp(2 * t)) * tail(exp(t))

    low, high = peak - max(9 * width, 30 / df), max(peak, mpf(0) if df < 30 else peak) + min(9 * width, mpf(2))
    return integral(inside, panels(low, high, min(mpf(2), widths * width)))


def tukey(q, k, df):
    return over_scale(df, -log(1 + q * q / (2 * df)) / 2, 6, lambda s: normal_range(q * s, k))


def student(t, df):
    constant = exp(loggamma((df + 1) / 2) - loggamma(df / 2)) / sqrt(df * pi)
    inside = lambda u: t * exp(u) * (1 + (t * exp(u)) ** 2 / df) ** (-(df + 1) / 2)
    # With x = t e^u the integrand falls at least with this rate.
    rate = (df * t * t - df) / (df + t * t)
    return constant * integral(inside, panels(mpf(0), 80 / rate, 4 / rate))


def ratio(f, one, other):
    constant = exp(loggamma((one + other) / 2) - loggamma(one / 2) - loggamma(other / 2)) * (one / other) ** (one / 2)
    inside = lambda u: (f * exp(u)) ** (one / 2) * (1 + one * f * exp(u) / other) ** (-(one + other) / 2)
    rate = one * other * (f - 1) / (2 * (other + one * f))
    return constant * integral(inside, panels(mpf(0), 80 / rate, 4 / rate))


def chisq(x, df):
    inside = lambda y: exp((df / 2 - 1) * log(y) - y / 2)
    high = x + 40 * sqrt(2 * df) + 200
    return integral(inside, panels(x, high, (high - x) / 24)) / (gamma(df / 2) * mpf(2) ** (df / 2))


def noncentral(t, df, shift):
    root = sqrt((shift * t) ** 2 + 4 * df * (df + t * t))
    peak = log((shift * t + root) / (2 * (df + t * t)))
    return over_scale(df, peak, 2, lambda s: normal(t * s - shift))


KINDS = {"normal": normal, "tukey": tukey, "student": student, "ratio": ratio, "chisq": chisq, "noncentral": noncentral}


def answer(line):
    kind, *arguments = line.split()
    values = [int(value) if kind == "tukey" and place == 1 else mpf(value) for place, value in enumerate(arguments)]
    return nstr(KINDS[kind](*values), 17)


if __name__ == "__main__":
    with Pool() as pool:
        print(*pool.map(answer, sys.stdin.readlines(), chunksize=1), sep="\n")
