"""What the kernel's soft-RoCE sends, over IPv4 and IPv6, to a peer that this program plays.

Runs as root in a guest of `cargo xtask vm`, with one argument: the capture to write. README.md has
the command. The peer is a raw socket at the other end of a veth pair: it records every packet, and
asks the kernel's queue pairs for what their answers show: data, atomics, negative acknowledgements.
"""

import socket
import struct
import subprocess
import sys
import time
import zlib

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PEER_QP, PEER_KEY, PEER_ADDRESS = 0xABC, 0xA1B2C3D4, 0x7F0000001000
LOCAL = {4: "198.51.100.1", 6: "fd00::1"}
PEER = {4: "198.51.100.2", 6: "fd00::2"}
RIGHTS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
          | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC)


def run(command):
    subprocess.run(command.split(), check=True)


def set_up():
    run("modprobe veth")
    run("ip link add left type veth peer name right")
    for end in ("left", "right"):
        run(f"ip link set {end} up")
    run(f"ip addr add {LOCAL[4]}/24 dev left")
    run(f"ip -6 addr add {LOCAL[6]}/64 dev left nodad")
    macs = {end: open(f"/sys/class/net/{end}/address").read().strip() for end in ("left", "right")}
    for peer in PEER.values():
        run(f"ip neigh add {peer} lladdr {macs['right']} dev left")
    run("rdma link add rxe1 type rxe netdev left")
    return {end: bytes.fromhex(mac.replace(":", "")) for end, mac in macs.items()}


class Peer:
    """The other end: a raw socket."""

    def __init__(self, macs):
        self.macs = macs
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind(("right", 0))
        self.frames = []

    def record(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                frame, (_, _, kind, _, _) = self.socket.recvfrom(65536)
            except TimeoutError:
                return
            if kind != socket.PACKET_OUTGOING:
                self.frames.append((time.time(), frame))

    def send(self, version, packet):
        """Sends a packet, given from BTH to pad, as RoCEv2 wants it."""
        length = 8 + len(packet) + 4
        udp = struct.pack(">HHHH", 0xC123, 4791, length, 0)
        source, to = (socket.inet_pton({4: socket.AF_INET, 6: socket.AF_INET6}[version], address)
                      for address in (PEER[version], LOCAL[version]))
        if version == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0x1234, 0x4000, 64, 17, 0) + source + to
            total = sum(struct.unpack(">10H", ip))
            total = (total & 0xFFFF) + (total >> 16)
            ip = ip[:10] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + ip[12:]
            masked = ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
        else:
            ip = struct.pack(">IHBB", 6 << 28, length, 17, 64) + source + to
            masked = b"\x6f\xff\xff\xff" + ip[4:7] + b"\xff" + ip[8:]
        covered = b"\xff" * 8 + masked + udp[:6] + b"\xff\xff" + packet[:4] + b"\xff" + packet[5:]
        icrc = struct.pack("<I", zlib.crc32(covered))
        kind = {4: b"\x08\x00", 6: b"\x86\xdd"}[version]
        self.socket.send(self.macs["left"] + self.macs["right"] + kind + ip + udp + packet + icrc)


def bth(opcode, qp, psn, pad=0, ack=True):
    return struct.pack(">BBHII", opcode, 0x40 | pad << 4, 0xFFFF, qp, ack << 31 | psn)


def gid(address):
    """As pyverbs writes it: eight groups of four digits."""
    as_ipv6 = address if ":" in address else f"::ffff:{address}"
    return socket.inet_pton(socket.AF_INET6, as_ipv6).hex(":", 2)


def gid_index(context, address):
    # The kernel adds it when it has seen the address.
    for _ in range(100):
        for index in range(16):
            if context.query_gid(1, index).gid == gid(address):
                return index
        time.sleep(0.1)
    raise RuntimeError(f"no GID {gid(address)}")


class Side:
    """The kernel's end, for one version of IP."""

    def __init__(self, context, version):
        self.pd = PD(context)
        self.cq = CQ(context, 256)
        self.mr = MR(self.pd, 8192, RIGHTS)
        self.mr.write(bytes(i * 7 % 251 for i in range(8192)), 8192)
        route = GlobalRoute(dgid=GID(gid(PEER[version])),
                            sgid_index=gid_index(context, LOCAL[version]), flow_label=0, hop_limit=64)
        self.path = AHAttr(is_global=1, port_num=1, gr=route)

    def qp(self, kind):
        cap = QPCap(max_send_wr=64, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        attr = QPAttr(port_num=1)
        if kind == e.IBV_QPT_UD:
            attr.qkey = 0x11111111
        else:
            attr.qp_access_flags = RIGHTS
            attr.path_mtu = e.IBV_MTU_256
            attr.dest_qp_num, attr.ah_attr = PEER_QP, self.path
            attr.rq_psn, attr.sq_psn = 0x100, 0xFFFFFE
            attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
            attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 14, 1, 1
        # Given attributes, a datagram queue pair is ready to send, a connected one only initialised.
        qp = QP(self.pd, init, attr)
        if kind != e.IBV_QPT_UD:
            qp.to_rts(attr)
        return qp

    def wr(self, opcode, length, imm=0, offset=0):
        sge = SGE(self.mr.buf + offset, length, self.mr.lkey)
        flags = e.IBV_SEND_SIGNALED | (e.IBV_SEND_SOLICITED if imm else 0)
        return SendWR(opcode=opcode, num_sge=1, sg=[sge], imm_data=socket.htonl(imm), send_flags=flags)


def requests(side, kind):
    """What a requester of this kind can send."""
    reliable = kind == e.IBV_QPT_RC
    plain = [(e.IBV_WR_SEND, 5, 0), (e.IBV_WR_SEND_WITH_IMM, 8, 0x12345678),
             (e.IBV_WR_SEND, 600, 0), (e.IBV_WR_SEND_WITH_IMM, 262, 0x12345678)]
    for opcode, length, imm in plain:
        yield side.wr(opcode, length, imm)
    writes = [(e.IBV_WR_RDMA_WRITE, 33, 0), (e.IBV_WR_RDMA_WRITE, 514, 0),
              (e.IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0x9ABCDEF0),
              (e.IBV_WR_RDMA_WRITE_WITH_IMM, 257, 0x9ABCDEF0)]
    if reliable:
        writes.append((e.IBV_WR_RDMA_READ, 600, 0))
    for opcode, length, imm in writes:
        wr = side.wr(opcode, length, imm)
        wr.set_wr_rdma(PEER_KEY, PEER_ADDRESS)
        yield wr
    if reliable:
        for opcode in (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD):
            wr = side.wr(opcode, 8)
            wr.set_wr_atomic(PEER_KEY, PEER_ADDRESS, 0x1112131415161718, 0x2122232425262728)
            yield wr
        for length in (7, 300):
            wr = side.wr(e.IBV_WR_SEND_WITH_INV, length)
            # Key and immediate data share their place in the work request.
            wr.imm_data = PEER_KEY
            yield wr


def main(path):
    peer = Peer(set_up())
    context = Context(name="rxe1")
    for version in (4, 6):
        side = Side(context, version)
        for kind in (e.IBV_QPT_RC, e.IBV_QPT_UC):
            qp = side.qp(kind)
            for wr in requests(side, kind):
                qp.post_send(wr)
            peer.record(0.5)
        qp = side.qp(e.IBV_QPT_UD)
        ah = AH(side.pd, attr=side.path)
        for opcode, length, imm in ((e.IBV_WR_SEND, 6, 0), (e.IBV_WR_SEND_WITH_IMM, 61, 0xFEEDBEEF)):
            wr = side.wr(opcode, length, imm)
            wr.set_wr_ud(ah, PEER_QP, 0x11111111)
            qp.post_send(wr)
        peer.record(0.3)
        # A request of the peer, and the answers: READ of 600 and of 5 bytes, WRITE, both atomics,
        # no receive, a gap in the sequence, a wrong key (which ends the queue pair).
        qp = side.qp(e.IBV_QPT_RC)
        address, key, number = side.mr.buf, side.mr.rkey, qp.qp_num
        reth = lambda length, key=key: struct.pack(">QII", address, key, length)
        atomic = struct.pack(">QIQQ", address, key, 3, 5)
        for packet in (
            bth(0x0C, number, 0x100) + reth(600),
            bth(0x0C, number, 0x103) + reth(5),
            bth(0x0A, number, 0x104) + reth(4) + b"mkey",
            bth(0x13, number, 0x105) + atomic,
            bth(0x14, number, 0x106) + atomic,
            bth(0x04, number, 0x107) + b"nobody waits",
            bth(0x0A, number, 0x109) + reth(4) + b"late",
        ):
            peer.send(version, packet)
            peer.record(0.3)
        for forbidden in (bth(0x0A, 0, 0x100) + reth(4, key ^ 0x55) + b"evil",
                          bth(0x01, 0, 0x100) + b"\0" * 256):
            qp = side.qp(e.IBV_QPT_RC)
            peer.send(version, forbidden[:4] + struct.pack(">I", qp.qp_num) + forbidden[8:])
            peer.record(0.3)
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for when, frame in peer.frames:
            out.write(struct.pack("<IIII", int(when), int(when % 1 * 1e9), len(frame), len(frame)) + frame)
    print(f"{len(peer.frames)} frames")


main(sys.argv[1])
