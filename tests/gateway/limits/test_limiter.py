"""Limits of one address and one token, decided without a clock or a socket."""

from dataclasses import replace

import pytest

from lorogo_gateway.addresses import RequestOrigin, TrustedProxies, check_network, key_of
from lorogo_gateway.limits.limiter import Limiter, LimitExceeded
from lorogo_gateway.limits.reasons import LimitCounters, LimitReason
from lorogo_gateway.limits.request_quota import RequestQuota
from lorogo_gateway.limits.table import DeadlineTable, RateTable, UsageTable
from lorogo_gateway.settings import GatewaySettings

SETTINGS = GatewaySettings(
    burst_seconds=1.0,
    address_connections_max=2,
    address_connects_per_second=3.0,
    address_requests_per_second=2.0,
    address_bytes_per_second=100.0,
    auth_failures_per_minute=3.0,
    auth_block_seconds=30.0,
    token_connections_max=2,
    token_documents_max=2,
    token_requests_per_second=2.0,
    token_bytes_per_second=50.0,
    token_updates_per_second=10.0,
    token_update_bytes_per_second=100.0,
    token_joins_per_second=2.0,
)
ADDRESS = "192.0.2.7"


def why(no: LimitExceeded | None) -> LimitReason | None:
    return None if no is None else no.why


class Time:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestTables:
    def test_rates_of_keys_are_apart(self) -> None:
        rates = RateTable(1.0, 2.0, keys_max=10)
        assert [rates.take("a", 1, now=0.0) for _ in range(2)] == [0.0, 0.0]
        assert rates.take("a", 1, now=0.0) > 0
        assert rates.take("b", 1, now=0.0) == 0.0
        assert rates.take("a", 1, now=1.5) == 0.0

    def test_the_least_used_keys_are_forgotten(self) -> None:
        rates = RateTable(1.0, 1.0, keys_max=3)
        for key in "abc":
            rates.take(key, 1, now=0.0)
        assert rates.take("a", 1, now=0.0) > 0  # which makes it the newest
        rates.take("d", 1, now=0.0)
        assert len(rates) == 3
        assert rates.take("a", 1, now=0.0) > 0
        assert rates.take("b", 1, now=0.0) == 0.0  # was forgotten

    def test_a_million_addresses_take_the_room_of_few(self) -> None:
        rates = RateTable(1.0, 1.0, keys_max=1000)
        for number in range(20_000):
            rates.take(str(number), 1, now=0.0)
        assert len(rates) == 1000

    def test_what_was_charged_is_paid_back_by_the_next(self) -> None:
        rates = RateTable(10.0, 1.0, keys_max=10)
        rates.charge("a", 100, now=0.0)
        assert rates.wait("a", now=0.0) == pytest.approx(10.0)
        assert rates.wait("a", now=8.9) > 0
        assert rates.wait("a", now=9.1) == 0.0

    def test_counts_leave_nothing_behind(self) -> None:
        counts = UsageTable(2)
        assert [counts.enter("a") for _ in range(3)] == [True, True, False]
        counts.leave("a")
        assert counts.enter("a")
        counts.leave("a")
        counts.leave("a")
        assert len(counts) == 0

    def test_deadlines_pass_and_are_bounded(self) -> None:
        held = DeadlineTable(2)
        held.set("a", 10.0)
        assert held.left("a", now=4.0) == 6.0
        assert held.left("a", now=10.0) == 0.0
        assert len(held) == 0
        for key in "abc":
            held.set(key, 10.0)
        assert [held.left(key, now=0.0) for key in "abc"] == [0.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("x" * 1000, "x" * 64),
    ],
)
def test_limits_are_counted_by_address_and_ipv6_by_64(address: str, key: str) -> None:
    assert key_of(address) == key


class TestProxies:
    PROXIES = TrustedProxies(("10.0.0.0/8", "127.0.0.1/32", "2001:db8::/32"))

    @pytest.mark.parametrize(
        ("peer", "header", "address"),
        [
            ("192.0.2.1", "198.51.100.9", "192.0.2.1"),  # the peer is no trusted proxy
            ("10.0.0.1", "198.51.100.9", "198.51.100.9"),
            ("::ffff:10.0.0.1", "198.51.100.9", "198.51.100.9"),
            ("10.0.0.1", "1.1.1.1, 198.51.100.9", "198.51.100.9"),  # the left one is an invention
            ("10.0.0.1", "198.51.100.9, 10.3.3.3", "198.51.100.9"),
            ("10.0.0.1", "198.51.100.9:5000", "198.51.100.9"),
            ("10.0.0.1", "[2a00::7]:5000", "2a00::7"),
            ("10.0.0.1", "2a00::7", "2a00::7"),
            ("10.0.0.1", "1.1.1.1, unknown", "10.0.0.1"),
            ("10.0.0.1", "1.1.1.1, unknown, 10.5.5.5", "10.5.5.5"),
            ("10.0.0.1", "1.1.1.1,", "10.0.0.1"),
            ("10.0.0.1", "10.2.2.2, 10.3.3.3", "10.2.2.2"),
            ("10.0.0.1", "999.1.1.1", "10.0.0.1"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("127.0.0.1", "198.51.100.9", "198.51.100.9"),
        ],
    )
    def test_the_rightmost_address_that_is_no_proxy_counts(
        self, peer: str, header: str, address: str
    ) -> None:
        headers = [(b"x-forwarded-for", header.encode())]
        assert self.PROXIES.origin(peer, headers).address == address

    @pytest.mark.parametrize(
        ("header", "address", "https"),
        [
            ("for=198.51.100.9;proto=https", "198.51.100.9", True),
            ('For="[2a00::7]:80"; proto=http', "2a00::7", False),
            ("for=1.1.1.1, for=198.51.100.9", "198.51.100.9", None),
            ("for=_hidden", "10.0.0.1", None),
            ("proto=https", "10.0.0.1", True),
            ("garbage;;;", "10.0.0.1", None),
            ('for="unclosed', "10.0.0.1", None),
        ],
    )
    def test_the_standard_header_says_the_same(self, header: str, address: str, https: bool | None) -> None:
        came = self.PROXIES.origin("10.0.0.1", [(b"forwarded", header.encode())])
        assert (came.address, came.https) == (address, https)

    def test_two_lines_of_a_header_are_one(self) -> None:
        headers = [(b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-for", b"198.51.100.9")]
        assert self.PROXIES.origin("10.0.0.1", headers).address == "198.51.100.9"

    def test_where_both_headers_disagree_neither_is_believed(self) -> None:
        """A proxy sets one and passes the other on as it came from the client."""
        headers = [(b"x-forwarded-for", b"198.51.100.9"), (b"forwarded", b"for=1.1.1.1")]
        came = self.PROXIES.origin("127.0.0.1", headers)
        assert (came.address, came.local) == ("127.0.0.1", False)  # and it is limited

    def test_the_scheme_is_the_last_proxy_s_word(self) -> None:
        headers = [(b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-proto", b"http, https")]
        assert self.PROXIES.origin("10.0.0.1", headers).https is True
        assert self.PROXIES.origin("192.0.2.1", headers).https is None

    def test_a_client_that_says_it_is_local_is_not(self) -> None:
        came = TrustedProxies(("10.0.0.0/8",)).origin("10.0.0.1", [(b"x-forwarded-for", b"127.0.0.1")])
        assert not came.local

    @pytest.mark.parametrize("wrong", ["", "proxy", "10.0.0.0/33", "10.0.0.0/8/8", "*"])
    def test_an_invalid_network_is_refused(self, wrong: str) -> None:
        with pytest.raises(ValueError, match="is not a network"):
            check_network(wrong)
        with pytest.raises(ValueError, match="is not a network"):
            GatewaySettings(trusted_proxies=(wrong,))

    def test_a_long_header_costs_little(self) -> None:
        came = self.PROXIES.origin("10.0.0.1", [(b"x-forwarded-for", b"10.0.0.2," * 8000 + b"10.0.0.3")])
        assert came.address == "10.0.0.2"

    @pytest.mark.parametrize("name", [b"x-forwarded-for", b"forwarded"])
    @pytest.mark.parametrize(
        "hostile",
        [
            b"a=" + b" " * 64_000 + b'"',
            b'a="' + b"\\" * 64_000,
            b" " * 64_000 + b"=",
            b"=;" * 32_000,
            b"[" * 64_000,
        ],
    )
    def test_what_a_client_writes_in_front_neither_costs_nor_counts(
        self, name: bytes, hostile: bytes
    ) -> None:
        """The gateway scans each header once; a quadratic scan of two runs of spaces took half a minute."""
        nearest = b"for=198.51.100.9;proto=https" if name == b"forwarded" else b"198.51.100.9"
        assert self.PROXIES.origin("10.0.0.1", [(name, hostile)]) == RequestOrigin("10.0.0.1", forwarded=True)
        assert self.PROXIES.origin("10.0.0.1", [(name, hostile), (name, nearest)]).address == "198.51.100.9"

    @pytest.mark.parametrize("name", [b"x-forwarded-for", b"forwarded"])
    def test_a_truncated_address_does_not_count(self, name: bytes) -> None:
        """Only the end of a header is read, and the rest of 192.0.2.7 may be 2.0.2.7."""
        start = b"for=" if name == b"forwarded" else b""
        far, near = start + b"198.51.100.9,", start + b"10.0.0.2"
        spaces = b" " * (8 * 1024 - len(far) - len(near))
        found = [
            self.PROXIES.origin("10.0.0.1", [(name, far + near + spaces + b" " * more)]).address
            for more in range(len(far))
        ]
        assert found == ["198.51.100.9"] + ["10.0.0.2"] * (len(far) - 1)


class TestLimiter:
    def test_connections_of_an_address_are_counted_until_they_end(self) -> None:
        limiter = Limiter(SETTINGS)
        assert [why(limiter.connect(ADDRESS, now=0.0)) for _ in range(3)] == [
            None,
            None,
            LimitReason.ADDRESS_CONNECTIONS,
        ]
        limiter.disconnect(ADDRESS)
        assert limiter.connect(ADDRESS, now=5.0) is None
        assert limiter.connect("192.0.2.8", now=5.0) is None

    def test_new_connections_have_a_rate(self) -> None:
        limiter = Limiter(replace(SETTINGS, address_connections_max=100))
        found = [why(limiter.connect(ADDRESS, now=0.0)) for _ in range(5)]
        assert found == [None] * 3 + [LimitReason.ADDRESS_CONNECTS] * 2
        assert limiter.connect(ADDRESS, now=1.0) is None

    def test_an_ipv6_line_is_one(self) -> None:
        limiter = Limiter(SETTINGS)
        assert limiter.connect("2001:db8::1", now=0.0) is None
        assert limiter.connect("2001:db8::2", now=0.0) is None
        assert why(limiter.connect("2001:db8::3", now=0.0)) is LimitReason.ADDRESS_CONNECTIONS

    @pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1"])
    def test_this_machine_and_proxies_are_not_counted(self, peer: str) -> None:
        limiter = Limiter(replace(SETTINGS, trusted_proxies=("10.0.0.0/8",)))
        assert [limiter.connect(peer, now=0.0) for _ in range(100)] == [None] * 100
        for _ in range(100):
            limiter.disconnect(peer)
        strict = Limiter(replace(SETTINGS, limit_loopback=True))
        assert any(strict.connect(peer, now=0.0) for _ in range(100))

    def test_requests_and_bodies_have_a_rate_each(self) -> None:
        limiter = Limiter(SETTINGS)
        assert limiter.request(ADDRESS, body=True, now=0.0) is None
        limiter.received(ADDRESS, "", 1000, now=0.0)  # one that began is read to its end
        assert why(limiter.request(ADDRESS, body=True, now=0.0)) is LimitReason.ADDRESS_BYTES
        assert limiter.request(ADDRESS, body=False, now=0.0) is None
        no = limiter.request(ADDRESS, body=False, now=0.0)
        assert no is not None
        assert (no.why, no.retry_after) == (LimitReason.ADDRESS_REQUESTS, "1")
        no = limiter.request(ADDRESS, body=True, now=1.0)
        assert no is not None
        assert (no.why, no.retry_after) == (LimitReason.ADDRESS_BYTES, "9")

    def test_two_rooms_of_a_document_are_one_open_document(self) -> None:
        limiter = Limiter(SETTINGS)
        for document in ("a", "a", "b"):
            assert limiter.enter_document("user", document) is None
        assert why(limiter.enter_document("user", "c")) is LimitReason.TOKEN_DOCUMENTS
        assert limiter.enter_document("other", "c") is None
        limiter.leave_document("user", "a")
        assert limiter.enter_document("user", "c") is not None
        limiter.leave_document("user", "a")
        assert limiter.enter_document("user", "c") is None

    def test_many_refused_tokens_and_no_more_are_looked_at_for_a_while(self) -> None:
        limiter = Limiter(SETTINGS)
        for _ in range(3):
            limiter.auth_failed(ADDRESS, now=0.0)
            assert limiter.auth_blocked(ADDRESS, "user", now=0.0) is None
        limiter.auth_failed(ADDRESS, now=0.0)
        no = limiter.auth_blocked(ADDRESS, "user", now=1.0)
        assert no is not None
        assert (no.why, no.retry_after) == (LimitReason.AUTH_FAILURES, "29")
        assert limiter.auth_blocked("192.0.2.8", "user", now=1.0) is None
        limiter.auth_passed("good", now=1.0)
        assert limiter.auth_blocked(ADDRESS, "good", now=2.0) is None
        assert limiter.auth_blocked(ADDRESS, "user", now=30.0) is None

    def test_every_refusal_is_counted_under_its_reason(self) -> None:
        limiter = Limiter(SETTINGS)
        for _ in range(5):
            limiter.join("user", now=0.0)
        assert limiter.refusals.facts()["token-joins"] == 3
        assert sum(limiter.refusals.facts().values()) == 3

    def test_the_reasons_are_a_fixed_set(self) -> None:
        assert set(LimitCounters().facts()) == {reason.value for reason in LimitReason}


class TestVisits:
    def test_updates_of_a_token_add_up_over_its_connections(self) -> None:
        clock = Time()
        limiter = Limiter(SETTINGS)
        one, two = (
            RequestQuota(limiter, RequestOrigin(address), clock).for_connection()
            for address in ("192.0.2.1", "192.0.2.2")
        )
        for share in (one, two):
            assert share.open() is None
            assert share.identify("user") is None
        assert one.update(6, 1) == 0.0
        assert two.update(6, 1) == 0.0
        assert one.update(1, 1) > 0
        assert two.update(1, 1) > 0
        clock.now += 1.0
        assert two.update(1, 200) == 0.0
        assert one.update(1, 1) > 0
        assert limiter.refusals.facts()["token-update-bytes"] == 1

    def test_connections_of_a_token_and_what_they_have_open_end_with_them(self) -> None:
        limiter = Limiter(SETTINGS)
        shares = [
            RequestQuota(limiter, RequestOrigin("127.0.0.1", local=True)).for_connection() for _ in range(3)
        ]
        assert [share.open() for share in shares] == [None] * 3  # without a token yet, from this machine
        assert [why(share.identify("user")) for share in shares] == [
            None,
            None,
            LimitReason.TOKEN_CONNECTIONS,
        ]
        shares[2].close()
        assert shares[0].enter_document("a") is None
        assert shares[1].enter_document("b") is None
        assert why(shares[1].enter_document("c")) is LimitReason.TOKEN_DOCUMENTS
        shares[0].close()
        shares[0].close()
        assert shares[1].enter_document("c") is None
        late = RequestQuota(limiter, RequestOrigin(ADDRESS)).for_connection()
        assert late.open() is None
        assert late.identify("user") is None

    def test_what_is_open_moves_to_the_token_once_that_is_known(self) -> None:
        limiter = Limiter(SETTINGS)
        share = RequestQuota(limiter, RequestOrigin(ADDRESS)).for_connection()
        assert share.open() is None
        assert share.enter_document("a") is None
        assert share.identify("user") is None
        other = RequestQuota(limiter, RequestOrigin(ADDRESS)).for_connection()
        assert other.open() is None
        assert [why(other.enter_document(name)) for name in "xyz"] == [
            None,
            None,
            LimitReason.TOKEN_DOCUMENTS,
        ]
        assert other.identify("user") is not None  # a, x and y are three

    def test_behind_a_proxy_websockets_count_for_their_own_address(self) -> None:
        limiter = Limiter(SETTINGS)
        shares = [
            RequestQuota(limiter, RequestOrigin(ADDRESS, forwarded=True)).for_connection() for _ in range(3)
        ]
        assert [why(share.open()) for share in shares] == [None, None, LimitReason.ADDRESS_CONNECTIONS]
        shares[0].close()
        assert shares[2].open() is None

    def test_this_machine_without_a_token_is_free(self) -> None:
        limiter = Limiter(SETTINGS)
        visit = RequestQuota(limiter, RequestOrigin("127.0.0.1", local=True))
        visit.body = True
        for _ in range(100):
            assert visit.begin() is None
            assert visit.identify(None) is None
            visit.failed()
            visit.received(10_000)
        assert visit.blocked("a.b.c") is None
        share = visit.for_connection()
        assert share.open() is None
        assert {share.update(100, 10_000) + share.join() for _ in range(100)} == {0.0}
        assert [share.enter_document(str(n)) for n in range(100)] == [None] * 100

    def test_a_token_is_limited_from_wherever_it_comes(self) -> None:
        limiter = Limiter(SETTINGS)
        found = []
        for address in ("127.0.0.1", "192.0.2.1", "192.0.2.2"):
            visit = RequestQuota(limiter, RequestOrigin(address, local=address == "127.0.0.1"), Time())
            found.append(why(visit.identify("user")))
        assert found == [None, None, LimitReason.TOKEN_REQUESTS]
        visit = RequestQuota(limiter, RequestOrigin("127.0.0.1", local=True), Time())
        visit.body = True
        assert visit.identify("other") is None
        visit.received(1000)
        assert why(visit.identify("other")) is LimitReason.TOKEN_BYTES
