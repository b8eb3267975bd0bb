"""How long a request decodes at a rate: mean steps, the prompts that follow its own, and the percentiles of both."""

import math

SOURCE = "delay busy period of a queue, https://doi.org/10.1002/9781119453765"


def followed_s(decode_steps: float, decode_step_s: float, mean_step_s: float, longest_step_s: float, gathering_s: float) -> float:
    """What prompts that arrived while a request waited for its own add to its decoding [s].

    The mean step x counts the prompts that arrive while sequences decode. Those that gathered in the W seconds before the first token
    are computed then, too, and with those that arrive meanwhile they take W (x - d) / d, d the step without prompts: the busy period of a
    queue that starts with their work. At most every step is full of prompts; short of that the mean over exponential times is taken,
    L (1 - exp(-time / L)) with L = steps x (longest step - x). Source: `SOURCE`.
    """
    added_s = gathering_s * max(0.0, mean_step_s / decode_step_s - 1)
    if math.isinf(longest_step_s):
        return added_s if decode_steps else 0.0
    most_s = decode_steps * max(0.0, longest_step_s - mean_step_s)
    return -most_s * math.expm1(-added_s / most_s) if most_s > 0 else 0.0


def prompts_deviation_s(decoding_s: float, prompt_ratio: float, square_ratio: float, rate: float, waited_s: float) -> float:
    """Standard deviation of the time that prompts add to the decoding of a request that waited so long [s].

    q sqrt(V (n x + (1 + q) W) / r): of a delay busy period whose arrivals come at r a second, with q = x / d - 1 the time with prompts per
    time of decoding, n x the steps, and V = E[prompt^2] / E[prompt]^2. Source: `SOURCE`.
    """
    return prompt_ratio * math.sqrt(square_ratio * (decoding_s + (1 + prompt_ratio) * waited_s) / rate)


def gamma_percentile(mean: float, deviation: float, deviates: float) -> float:
    """The percentile of a gamma distribution at which a normal one lies `deviates` standard deviations above its mean.

    Wilson and Hilferty: k theta (1 - 1 / (9 k) + z / (3 sqrt(k)))^3 with k = (mean / deviation)^2
    (https://doi.org/10.1073/pnas.17.12.684). Within 2 % from k = 1 on at 95 and 99 %; below, few requests meet anything at all.

    >>> round(gamma_percentile(1.0, 1.0, 1.6449), 2), gamma_percentile(5.0, 0.0, 1.6449)
    (2.97, 5.0)
    """
    if not mean or not deviation:
        return mean
    root = mean / deviation
    found: float = mean * max(0.0, 1 - 1 / (9 * root**2) + deviates / (3 * root)) ** 3
    return found
