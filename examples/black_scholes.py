"""Option prices and their sensitivities ("Greeks"), by differentiation of the price.

    python examples/black_scholes.py

The Greeks of a call option have closed forms, which the results are compared with.
"""

import numpy as np

import tapec


def normal_cdf(x):
    """The normal distribution function: Zelen and Severo's polynomial (error below 7.5e-8)."""
    t = 1 / (1 + 0.2316419 * np.abs(x))
    poly = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    tail = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * poly
    return np.where(x > 0, 1 - tail, tail)


def call_price(spot, strike, rate, volatility, years):
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    d2 = d1 - spread
    return spot * normal_cdf(d1) - strike * np.exp(-rate * years) * normal_cdf(d2)


def main():
    market = (100.0, 105.0, 0.03, 0.2, 0.5)
    price, greeks = tapec.value_and_grad(call_price, argnums=(0, 2, 3, 4))(*market)
    delta, rho, vega, minus_theta = greeks
    gamma = tapec.grad(tapec.grad(call_price))(*market)
    print(f"price {price:.4f}")
    print(f"delta {delta:.5f}  gamma {gamma:.5f}  vega {vega:.4f}")
    print(f"rho {rho:.4f}  theta {-minus_theta:.4f}")

    # The closed forms.
    spot, strike, rate, volatility, years = market
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    density = np.exp(-(d1**2) / 2) / np.sqrt(2 * np.pi)
    discount = strike * np.exp(-rate * years) * normal_cdf(d1 - spread)
    assert abs(delta - normal_cdf(d1)) < 1e-5
    assert abs(vega - spot * density * np.sqrt(years)) < 1e-3
    assert abs(gamma - density / (spot * spread)) < 1e-5
    assert abs(rho - years * discount) < 1e-3

    # A whole book at once: one call, one pass over memory.
    spots = np.linspace(60.0, 140.0, 100_000)
    book = tapec.value_and_grad(lambda s: np.sum(call_price(s, *market[1:])))
    total, deltas = book(spots)
    print(
        f"book of {spots.size}: value {total:.2f}, deltas {deltas.min():.4f} … {deltas.max():.4f}"
    )
    return delta


if __name__ == "__main__":
    main()
