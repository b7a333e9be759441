"""Signatures of RFC 8032 (Ed25519), and keys of RFC 5869 (HKDF-SHA256), for attacks that hold a key: slow, and not safe against who measures it."""

import hashlib
import hmac

P = 2 ** 255 - 19
ORDER = 2 ** 252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
IDENTITY = (0, 1, 1, 0)


def base():
    """The base point, in extended coordinates."""
    y = 4 * pow(5, -1, P) % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x % 2:
        x = P - x
    return (x, y, 1, x * y % P)


def add(one, two):
    """The sum of two points."""
    a = (one[1] - one[0]) * (two[1] - two[0]) % P
    b = (one[1] + one[0]) * (two[1] + two[0]) % P
    c = 2 * one[3] * two[3] * D % P
    d = 2 * one[2] * two[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(scalar, point):
    """A multiple of a point."""
    total = IDENTITY
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point = add(point, point)
        scalar >>= 1
    return total


def encoded(point):
    """The 32 bytes of a point."""
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def number(*parts):
    """SHA-512 of some bytes as a number."""
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


class Key:
    """The pair of keys that a seed of 32 bytes makes."""

    def __init__(self, seed):
        half = hashlib.sha512(seed).digest()
        self.scalar = int.from_bytes(half[:32], "little") & (2 ** 254 - 8) | 2 ** 254
        self.prefix = half[32:]
        self.base = base()
        self.public = encoded(times(self.scalar, self.base))

    def sign(self, message):
        """The 64 bytes of a signature."""
        nonce = number(self.prefix, message) % ORDER
        point = encoded(times(nonce, self.base))
        return point + ((nonce + number(point, self.public, message) * self.scalar) % ORDER).to_bytes(32, "little")


def hkdf(salt, secret, information, size):
    """Up to 32 bytes of HKDF-SHA256."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, information + b"\1", hashlib.sha256).digest()[:size]
