/*
 * Every operation of the verbs at every size, and every byte of it looked at: what was to be written
 * is there, and nothing around it.
 *
 *   every_byte                 both sides in this process, a thread each
 *   every_byte listen PORT     one side here,
 *   every_byte HOST PORT       the other there
 *
 * The two sides go through the same list of cases in step, by a stream socket beside the queue pairs.
 * Ends with 0 and "N cases", or says what is wrong and ends with 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST (8u << 20)
#define EDGE 4096u
#define ROOM (MOST + 2 * EDGE)
#define GRH 40u
#define PATIENCE_MS 20000

#define CHECK(what, ...) \
	do { \
		if (!(what)) \
			die(__LINE__, #what, __VA_ARGS__); \
	} while (0)

static const uint32_t sizes[] = {
	0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 63, 64, 65, 127, 200, 255, 256, 257, 511, 1000, 1023, 1024,
	1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 12289, 65535, 65536, 65537, 131072, 1000000,
	1048575, 1048576, 1048577, MOST - 1, MOST,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* What each side tells the other. */
struct address {
	uint32_t qpn, psn, rkey, lkey;
	uint64_t start;
	uint8_t gid[16];
};

struct side {
	const char *name;
	int control;
	int first; /* acts first */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	enum ibv_qp_type type;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	struct address own, peer;
	uint64_t cases;
	uint32_t mtu;
};

static __thread struct side *self;
static __thread const char *doing = "starting";

static void die(int line, const char *what, const char *format, ...)
{
	int saved = errno;
	va_list args;

	fprintf(stderr, "every_byte: %s, %s, line %d: %s: ", self ? self->name : "", doing, line, what);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (%s)\n", strerror(saved));
	exit(1);
}

/* The byte at a place of a message. */
static uint8_t byte_at(uint32_t seed, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xff51afd7ed558ccdull;

	return (uint8_t)(x >> 56 ^ x >> 32);
}

static void fill(uint8_t *to, uint32_t length, uint32_t seed)
{
	for (uint32_t at = 0; at < length; at++)
		to[at] = byte_at(seed, at);
}

static void expect(const uint8_t *from, uint32_t length, uint32_t seed)
{
	for (uint32_t at = 0; at < length; at++)
		CHECK(from[at] == byte_at(seed, at), "byte %u of %u is %#x, not %#x", at, length, from[at],
		      byte_at(seed, at));
}

/* So that a byte beyond is seen. */
static void blank(uint8_t *around, uint32_t length)
{
	memset(around - EDGE, 0x5a, length + 2 * (size_t)EDGE);
}

static void untouched(const uint8_t *from, const uint8_t *to)
{
	for (; from < to; from++)
		CHECK(*from == 0x5a, "a byte %zd before the end is %#x", to - from, *from);
}

static void untouched_around(const uint8_t *start, uint32_t length)
{
	untouched(start - EDGE, start);
	untouched(start + length, start + length + EDGE);
}

static void tell(const void *bytes, size_t length)
{
	const char *from = bytes;

	while (length > 0) {
		ssize_t done = send(self->control, from, length, MSG_NOSIGNAL);

		CHECK(done > 0, "the other side has gone");
		from += done;
		length -= done;
	}
}

static void hear(void *bytes, size_t length)
{
	char *to = bytes;

	while (length > 0) {
		ssize_t done = recv(self->control, to, length, 0);

		CHECK(done > 0, "the other side has gone");
		to += done;
		length -= done;
	}
}

/* Both sides are here. */
static void meet(void)
{
	uint32_t mark = 0x6d656574, heard = 0;

	tell(&mark, sizeof mark);
	hear(&heard, sizeof heard);
	CHECK(heard == mark, "out of step");
}

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

static struct ibv_wc polled(void)
{
	int64_t until = now_ms() + PATIENCE_MS;
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(self->cq, 1, &wc)) == 0)
		CHECK(now_ms() < until, "no completion came");
	CHECK(count == 1, "poll says %d", count);
	return wc;
}

static struct ibv_wc completed(uint64_t id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = polled();

	CHECK(wc.status == IBV_WC_SUCCESS, "%s (vendor %u)", ibv_wc_status_str(wc.status), wc.vendor_err);
	CHECK(wc.wr_id == id, "wr_id %llu, not %llu", (unsigned long long)wc.wr_id, (unsigned long long)id);
	CHECK(wc.opcode == opcode, "opcode %d, not %d", wc.opcode, opcode);
	CHECK(wc.qp_num == self->qp->qp_num, "queue pair %#x", wc.qp_num);
	return wc;
}

static uint8_t *place(void)
{
	return self->memory + EDGE;
}

static void open_side(void)
{
	struct ibv_device **list;
	struct ibv_port_attr port;
	int count = 0;

	doing = "opening";
	list = ibv_get_device_list(&count);
	CHECK(list && count > 0, "no device");
	self->context = ibv_open_device(list[0]);
	CHECK(self->context, "%s", ibv_get_device_name(list[0]));
	ibv_free_device_list(list);
	CHECK(ibv_query_port(self->context, 1, &port) == 0, "port");
	self->mtu = 128u << port.active_mtu;
	self->pd = ibv_alloc_pd(self->context);
	CHECK(self->pd, "pd");
	self->memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(self->memory != MAP_FAILED, "memory");
	self->channel = ibv_create_comp_channel(self->context);
	CHECK(self->channel, "channel");
	self->cq = ibv_create_cq(self->context, 64, self, self->channel, 0);
	CHECK(self->cq, "cq");
}

static void register_memory(unsigned int more)
{
	unsigned int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | more;

	self->mr = ibv_reg_mr(self->pd, self->memory, ROOM, access);
	CHECK(self->mr, "reg_mr");
}

static void to_init(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	mask |= self->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(self->qp, &attr, mask) == 0, "INIT");
}

static void meet_peer(void)
{
	union ibv_gid gid;

	CHECK(ibv_query_gid(self->context, 1, 0, &gid) == 0, "gid");
	self->own = (struct address){ self->qp->qp_num, 0x123456 & (self->qp->qp_num * 7), self->mr->rkey,
				      self->mr->lkey, (uintptr_t)place(), {0} };
	memcpy(self->own.gid, &gid, 16);
	tell(&self->own, sizeof self->own);
	hear(&self->peer, sizeof self->peer);
}

static struct ibv_ah_attr to_peer(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	memcpy(&attr.grh.dgid, self->peer.gid, 16);
	attr.grh.hop_limit = 64;
	return attr;
}

static void connect_qp(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask = IBV_QP_STATE;

	if (self->type != IBV_QPT_UD) {
		attr.ah_attr = to_peer();
		attr.path_mtu = IBV_MTU_1024;
		attr.dest_qp_num = self->peer.qpn;
		attr.rq_psn = self->peer.psn;
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (self->type == IBV_QPT_RC) {
		attr.max_dest_rd_atomic = 4;
		attr.min_rnr_timer = 1;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	CHECK(ibv_modify_qp(self->qp, &attr, mask) == 0, "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = self->own.psn };
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (self->type == IBV_QPT_RC) {
		attr.timeout = 14;
		attr.retry_cnt = 7;
		attr.rnr_retry = 7;
		attr.max_rd_atomic = 4;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	CHECK(ibv_modify_qp(self->qp, &attr, mask) == 0, "RTS");
	meet();
}

static void open_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = self->cq, .recv_cq = self->cq, .srq = self->srq, .qp_type = type,
		.cap = { 32, 32, 4, 4, 256 },
	};

	doing = "connecting";
	self->type = type;
	self->qp = ibv_create_qp(self->pd, &init);
	CHECK(self->qp, "qp");
	CHECK(init.cap.max_inline_data >= 256, "inline %u", init.cap.max_inline_data);
	to_init();
	meet_peer();
	if (type == IBV_QPT_UD) {
		struct ibv_ah_attr attr = to_peer();

		self->ah = ibv_create_ah(self->pd, &attr);
		CHECK(self->ah, "ah");
	}
	connect_qp();
}

static void close_qp(void)
{
	doing = "closing";
	meet();
	CHECK(ibv_destroy_qp(self->qp) == 0, "qp");
	if (self->ah)
		CHECK(ibv_destroy_ah(self->ah) == 0, "ah");
	self->ah = NULL;
}

/* Memory in one, two or three entries; the last tells them apart. */
static int entries(struct ibv_sge *list, uint8_t *start, uint32_t length, int pieces)
{
	uint32_t cut = length / pieces;

	for (int at = 0; at < pieces; at++) {
		uint32_t from = cut * at;
		uint32_t part = at == pieces - 1 ? length - from : cut;

		list[at] = (struct ibv_sge){ (uintptr_t)(start + from), part, self->mr->lkey };
	}
	return length == 0 && pieces == 1 ? 0 : pieces;
}

static void post_receive(uint64_t id, uint32_t length, int pieces)
{
	struct ibv_sge list[3];
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = list }, *bad;

	wr.num_sge = entries(list, place(), length, pieces);
	if (self->srq)
		CHECK(ibv_post_srq_recv(self->srq, &wr, &bad) == 0, "post_srq_recv");
	else
		CHECK(ibv_post_recv(self->qp, &wr, &bad) == 0, "post_recv");
}

static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error;

	if (self->type == IBV_QPT_UD) {
		wr->wr.ud.ah = self->ah;
		wr->wr.ud.remote_qpn = self->peer.qpn;
		wr->wr.ud.remote_qkey = 0x11111111;
	}
	error = ibv_post_send(self->qp, wr, &bad);
	errno = error;
	CHECK(error == 0, "post_send");
}

/* A message with a receive: SEND, with immediate, with invalidation, WRITE with immediate. */
static void with_receive(int acts, enum ibv_wr_opcode opcode, uint32_t length, int pieces, int in_line,
			 uint32_t seed)
{
	uint32_t head = self->type == IBV_QPT_UD ? GRH : 0;
	int writes = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint32_t imm = htobe32(0xabc00000 ^ seed), key = 0;
	struct ibv_wc wc;

	blank(place(), length + head);
	if (!acts && opcode == IBV_WR_SEND_WITH_INV) {
		/* A window that the message ends. */
		key = ibv_inc_rkey(self->mw->rkey);
		struct ibv_send_wr bind = { .wr_id = 5, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };

		bind.bind_mw.mw = self->mw;
		bind.bind_mw.rkey = key;
		bind.bind_mw.bind_info = (struct ibv_mw_bind_info){ self->mr, (uintptr_t)place(), 64,
								    IBV_ACCESS_REMOTE_READ };
		post(&bind);
		completed(5, IBV_WC_BIND_MW);
		CHECK(self->mw->rkey == key, "the key of the window is %#x", self->mw->rkey);
	}
	if (!acts) {
		post_receive(seed, writes ? 0 : length + head, writes ? 1 : pieces);
		tell(&key, sizeof key);
		wc = completed(seed, writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
		CHECK(wc.byte_len == length + head, "%u bytes", wc.byte_len);
		if (opcode == IBV_WR_SEND_WITH_IMM || writes)
			CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == imm, "immediate %#x", wc.imm_data);
		if (opcode == IBV_WR_SEND_WITH_INV)
			CHECK((wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == key, "invalidated %#x",
			      wc.invalidated_rkey);
		expect(place() + head, length, seed);
		untouched_around(place(), length + head);
		if (head) {
			struct ibv_ah *back;

			CHECK(wc.wc_flags & IBV_WC_GRH, "no routing header");
			CHECK(wc.src_qp == self->peer.qpn, "from %#x", wc.src_qp);
			back = ibv_create_ah_from_wc(self->pd, &wc, (struct ibv_grh *)place(), 1);
			CHECK(back, "no way back");
			CHECK(ibv_destroy_ah(back) == 0, "ah");
		}
	} else {
		struct ibv_sge list[3];
		struct ibv_send_wr wr = { .wr_id = seed, .sg_list = list, .opcode = opcode };

		hear(&key, sizeof key);
		fill(place(), length, seed);
		wr.num_sge = entries(list, place(), length, pieces);
		wr.send_flags = IBV_SEND_SIGNALED | (in_line ? IBV_SEND_INLINE : 0);
		wr.imm_data = imm;
		if (opcode == IBV_WR_SEND_WITH_INV)
			wr.invalidate_rkey = key;
		if (writes) {
			wr.wr.rdma.remote_addr = self->peer.start;
			wr.wr.rdma.rkey = self->peer.rkey;
		}
		post(&wr);
		if (in_line) /* The bytes are the program's again. */
			memset(place(), 0, length);
		completed(seed, writes ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
	}
	meet();
	self->cases++;
}

static void plain_write(int acts, uint32_t length, int pieces, int in_line, uint32_t seed)
{
	blank(place(), length);
	meet();
	if (acts) {
		struct ibv_sge list[3];
		struct ibv_send_wr wr = { .wr_id = seed, .sg_list = list, .opcode = IBV_WR_RDMA_WRITE };

		fill(place(), length, seed);
		wr.num_sge = entries(list, place(), length, pieces);
		wr.send_flags = IBV_SEND_SIGNALED | (in_line ? IBV_SEND_INLINE : 0);
		wr.wr.rdma.remote_addr = self->peer.start;
		wr.wr.rdma.rkey = self->peer.rkey;
		post(&wr);
		completed(seed, IBV_WC_RDMA_WRITE);
	}
	if (self->type == IBV_QPT_RC) {
		meet();
	} else if (!acts && length > 0) {
		/* UC: that it was sent is no sign that it is there. The last byte is the last to come. */
		int64_t until = now_ms() + PATIENCE_MS;
		volatile uint8_t *last = place() + length - 1;

		while (*last == 0x5a && byte_at(seed, length - 1) != 0x5a)
			CHECK(now_ms() < until, "nothing came");
		if (byte_at(seed, length - 1) == 0x5a)
			usleep(100000);
	}
	if (!acts) {
		expect(place(), length, seed);
		untouched_around(place(), length);
	}
	meet();
	self->cases++;
}

static void plain_read(int acts, uint32_t length, int pieces, uint32_t seed)
{
	blank(place(), length);
	if (!acts)
		fill(place(), length, seed);
	meet();
	if (acts) {
		struct ibv_sge list[3];
		struct ibv_send_wr wr = { .wr_id = seed, .sg_list = list, .opcode = IBV_WR_RDMA_READ,
					  .send_flags = IBV_SEND_SIGNALED };
		struct ibv_wc wc;

		wr.num_sge = entries(list, place(), length, pieces);
		wr.wr.rdma.remote_addr = self->peer.start;
		wr.wr.rdma.rkey = self->peer.rkey;
		post(&wr);
		wc = completed(seed, IBV_WC_RDMA_READ);
		CHECK(wc.byte_len == length, "%u bytes", wc.byte_len);
		expect(place(), length, seed);
		untouched_around(place(), length);
	}
	meet();
	if (!acts)
		expect(place(), length, seed);
	self->cases++;
}

static void atomics(int acts, uint32_t seed)
{
	uint64_t start = 0x0123456789abcdefull ^ seed, *word = (uint64_t *)place();

	blank(place(), 64);
	if (!acts)
		*word = start;
	meet();
	for (int step = 0; acts && step < 3; step++) {
		struct ibv_sge entry = { (uintptr_t)(place() + 32), 8, self->mr->lkey };
		struct ibv_send_wr wr = { .wr_id = seed + step, .sg_list = &entry, .num_sge = 1,
					  .send_flags = IBV_SEND_SIGNALED };
		uint64_t before[3] = { start, start + 7, start + 7 };
		uint64_t got;

		wr.opcode = step == 0 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
		wr.wr.atomic.remote_addr = self->peer.start;
		wr.wr.atomic.rkey = self->peer.rkey;
		/* An add; a swap that does not compare; one that does. */
		wr.wr.atomic.compare_add = step == 0 ? 7 : step == 1 ? 1 : start + 7;
		wr.wr.atomic.swap = 0xfeedfacecafebeefull;
		post(&wr);
		completed(seed + step, step == 0 ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
		memcpy(&got, place() + 32, 8);
		CHECK(got == before[step], "step %d: %#llx was there", step, (unsigned long long)got);
		untouched(place(), place() + 32);
		untouched(place() + 40, place() + 64);
	}
	meet();
	if (!acts) {
		CHECK(*word == 0xfeedfacecafebeefull, "%#llx", (unsigned long long)*word);
		untouched(place() - EDGE, place());
		untouched(place() + 8, place() + 64);
	}
	meet();
	self->cases += 3;
}

/* A window of each type over part of the memory: within it goes, beyond it does not. */
static void windows(int acts, uint32_t seed)
{
	uint32_t length = 1000, key = 0;
	struct ibv_mw *one = NULL;

	blank(place(), length);
	if (!acts) {
		struct ibv_mw_bind bind = { .wr_id = 6, .send_flags = IBV_SEND_SIGNALED };

		one = ibv_alloc_mw(self->pd, IBV_MW_TYPE_1);
		CHECK(one, "window");
		bind.bind_info = (struct ibv_mw_bind_info){ self->mr, (uintptr_t)place(), length,
							    IBV_ACCESS_REMOTE_WRITE };
		CHECK(ibv_bind_mw(self->qp, one, &bind) == 0, "bind");
		completed(6, IBV_WC_BIND_MW);
		tell(&one->rkey, sizeof one->rkey);
	} else {
		struct ibv_sge entry = { (uintptr_t)place(), length, self->mr->lkey };
		struct ibv_send_wr wr = { .wr_id = seed, .sg_list = &entry, .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };

		hear(&key, sizeof key);
		fill(place(), length, seed);
		wr.wr.rdma.remote_addr = self->peer.start;
		wr.wr.rdma.rkey = key;
		post(&wr);
		completed(seed, IBV_WC_RDMA_WRITE);
	}
	meet();
	if (!acts) {
		expect(place(), length, seed);
		untouched_around(place(), length);
		CHECK(ibv_dealloc_mw(one) == 0, "window");
	}
	meet();
	self->cases++;
}

/* Made anew, as after an error. */
static void restart(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	meet();
	CHECK(ibv_modify_qp(self->qp, &attr, IBV_QP_STATE) == 0, "RESET");
	to_init();
	meet();
	connect_qp();
}

static void expect_event(enum ibv_event_type type)
{
	struct pollfd poll_for = { self->context->async_fd, POLLIN, 0 };
	struct ibv_async_event event;

	do {
		CHECK(poll(&poll_for, 1, PATIENCE_MS) == 1, "no event");
		CHECK(ibv_get_async_event(self->context, &event) == 0, "event");
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_COMM_EST);
	CHECK(event.event_type == type, "%s", ibv_event_type_str(event.event_type));
	CHECK(event.element.qp == self->qp, "of another queue pair");
}

/* What must not go, does not, and leaves everything as it was. */
static void refused(int acts, int how, uint32_t seed)
{
	static const char *const names[] = { "a key of nothing", "a byte beyond", "a byte before",
					     "a local key of nothing" };
	uint32_t length = 300;

	doing = names[how];
	blank(place(), length);
	meet();
	if (acts) {
		struct ibv_sge entry = { (uintptr_t)place(), length, self->mr->lkey };
		struct ibv_send_wr wr = { .wr_id = seed, .sg_list = &entry, .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
		struct ibv_wc wc;

		fill(place(), length, seed);
		wr.wr.rdma.remote_addr = self->peer.start;
		wr.wr.rdma.rkey = self->peer.rkey;
		if (how == 0)
			wr.wr.rdma.rkey ^= 0x5500;
		if (how == 1)
			wr.wr.rdma.remote_addr += ROOM - EDGE - length + 1;
		if (how == 2)
			wr.wr.rdma.remote_addr -= EDGE + 1;
		if (how == 3)
			entry.lkey ^= 0x5500;
		post(&wr);
		wc = polled();
		CHECK(wc.wr_id == seed, "wr_id");
		CHECK(wc.status == (how == 3 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR), "%s",
		      ibv_wc_status_str(wc.status));
	} else if (how != 3) {
		expect_event(IBV_EVENT_QP_ACCESS_ERR);
	}
	meet();
	if (!acts)
		untouched(place() - EDGE, place() + length + EDGE);
	restart();
	self->cases++;
}

/* A completion by its event: poll, then epoll by edge, then a read that finds nothing. */
static void by_event(int acts, int edge, uint32_t seed)
{
	uint32_t length = 64;

	doing = "completion events";
	blank(place(), length);
	if (!acts) {
		struct ibv_cq *cq;
		void *context;
		struct ibv_wc wc;
		int poller = epoll_create1(EPOLL_CLOEXEC), flags;
		struct epoll_event wanted = { EPOLLIN | (edge ? EPOLLET : 0), { 0 } }, got;

		CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, self->channel->fd, &wanted) == 0, "epoll");
		CHECK(ibv_req_notify_cq(self->cq, 0) == 0, "notify");
		post_receive(seed, length, 1);
		CHECK(epoll_wait(poller, &got, 1, 0) == 0, "an event before there is one");
		meet();
		CHECK(epoll_wait(poller, &got, 1, PATIENCE_MS) == 1, "no event");
		CHECK(ibv_get_cq_event(self->channel, &cq, &context) == 0, "event");
		CHECK(cq == self->cq && context == self, "of another queue");
		ibv_ack_cq_events(cq, 1);
		CHECK(epoll_wait(poller, &got, 1, 0) == 0, "an event twice");
		wc = completed(seed, IBV_WC_RECV);
		CHECK(wc.byte_len == length, "%u bytes", wc.byte_len);
		flags = fcntl(self->channel->fd, F_GETFL);
		CHECK(fcntl(self->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0, "fcntl");
		CHECK(ibv_get_cq_event(self->channel, &cq, &context) == -1 && errno == EAGAIN, "an event twice");
		CHECK(fcntl(self->channel->fd, F_SETFL, flags) == 0, "fcntl");
		close(poller);
		expect(place(), length, seed);
	} else {
		struct ibv_sge entry = { (uintptr_t)place(), length, self->mr->lkey };
		struct ibv_send_wr wr = { .wr_id = seed, .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED };

		fill(place(), length, seed);
		meet();
		post(&wr);
		completed(seed, IBV_WC_SEND);
	}
	meet();
	self->cases++;
}

static uint32_t seed_of(int direction, uint32_t at, uint32_t kind)
{
	return 1 + (direction * 1000 + at) * 16 + kind;
}

static void every_size(enum ibv_qp_type type)
{
	/* A shared queue is no other way for the bytes. */
	uint32_t most = type == IBV_QPT_UD ? self->mtu : self->srq ? 65537 : MOST;

	for (int direction = 0; direction < 2; direction++) {
		int acts = direction == self->first;

		for (uint32_t at = 0; at < SIZES; at++) {
			uint32_t length = sizes[at];
			int pieces = length >= 3 ? 3 : 1, in_line = length <= 256;

			if (length > most)
				continue;
			doing = "SEND";
			with_receive(acts, IBV_WR_SEND, length, 1, 0, seed_of(direction, at, 0));
			doing = "SEND with immediate, scattered";
			with_receive(acts, IBV_WR_SEND_WITH_IMM, length, pieces, 0, seed_of(direction, at, 1));
			if (in_line) {
				doing = "SEND inline";
				with_receive(acts, IBV_WR_SEND, length, pieces, 1, seed_of(direction, at, 2));
			}
			if (type == IBV_QPT_UD)
				continue;
			doing = "RDMA WRITE";
			plain_write(acts, length, 1, 0, seed_of(direction, at, 3));
			doing = "RDMA WRITE, gathered";
			plain_write(acts, length, pieces, 0, seed_of(direction, at, 4));
			if (in_line) {
				doing = "RDMA WRITE inline";
				plain_write(acts, length, pieces, 1, seed_of(direction, at, 5));
			}
			doing = "RDMA WRITE with immediate";
			with_receive(acts, IBV_WR_RDMA_WRITE_WITH_IMM, length, pieces, 0, seed_of(direction, at, 6));
			if (type != IBV_QPT_RC)
				continue;
			doing = "RDMA READ";
			plain_read(acts, length, 1, seed_of(direction, at, 7));
			doing = "RDMA READ, scattered";
			plain_read(acts, length, pieces, seed_of(direction, at, 8));
			doing = "SEND with invalidate";
			with_receive(acts, IBV_WR_SEND_WITH_INV, length, 1, 0, seed_of(direction, at, 9));
		}
		if (type != IBV_QPT_RC)
			continue;
		doing = "atomics";
		atomics(acts, seed_of(direction, 900, 0));
		doing = "windows";
		windows(acts, seed_of(direction, 901, 0));
	}
}

static void *run_side(void *argument)
{
	struct ibv_srq_init_attr shared = { .attr = { 32, 4, 0 } };

	self = argument;
	open_side();
	for (int round = 0; round < 2; round++) {
		/* Pinned, then on demand. */
		doing = "registering";
		register_memory(round ? IBV_ACCESS_ON_DEMAND : 0);
		if (round == 0) {
			open_qp(IBV_QPT_UD);
			every_size(IBV_QPT_UD);
			close_qp();
			open_qp(IBV_QPT_UC);
			every_size(IBV_QPT_UC);
			close_qp();
		}
		self->mw = ibv_alloc_mw(self->pd, IBV_MW_TYPE_2);
		CHECK(self->mw, "window");
		open_qp(IBV_QPT_RC);
		every_size(IBV_QPT_RC);
		for (int direction = 0; direction < 2; direction++) {
			int acts = direction == self->first;

			by_event(acts, 0, seed_of(direction, 902, 0));
			by_event(acts, 1, seed_of(direction, 902, 1));
			for (int how = 0; how < 4; how++)
				refused(acts, how, seed_of(direction, 903, how));
		}
		close_qp();
		self->srq = ibv_create_srq(self->pd, &shared);
		CHECK(self->srq, "srq");
		open_qp(IBV_QPT_RC);
		every_size(IBV_QPT_RC);
		close_qp();
		CHECK(ibv_destroy_srq(self->srq) == 0, "srq");
		self->srq = NULL;
		CHECK(ibv_dealloc_mw(self->mw) == 0, "window");
		CHECK(ibv_dereg_mr(self->mr) == 0, "mr");
		meet();
	}
	CHECK(ibv_destroy_cq(self->cq) == 0, "cq");
	CHECK(ibv_destroy_comp_channel(self->channel) == 0, "channel");
	CHECK(ibv_dealloc_pd(self->pd) == 0, "pd");
	CHECK(ibv_close_device(self->context) == 0, "close");
	return NULL;
}

static int reach(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
	int64_t until = now_ms() + PATIENCE_MS;
	int made;

	CHECK(getaddrinfo(host, port, &hints, &found) == 0, "%s", host);
	for (;;) {
		made = socket(found->ai_family, found->ai_socktype, 0);
		if (connect(made, found->ai_addr, found->ai_addrlen) == 0)
			break;
		CHECK(now_ms() < until, "%s %s does not answer", host, port);
		close(made);
		usleep(10000);
	}
	freeaddrinfo(found);
	return made;
}

static int listened(const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
	int one = 1, socket_, made;

	CHECK(getaddrinfo(NULL, port, &hints, &found) == 0, "%s", port);
	socket_ = socket(found->ai_family, found->ai_socktype, 0);
	setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	CHECK(bind(socket_, found->ai_addr, found->ai_addrlen) == 0 && listen(socket_, 1) == 0, "%s", port);
	freeaddrinfo(found);
	made = accept(socket_, NULL, NULL);
	CHECK(made >= 0, "nobody came");
	close(socket_);
	return made;
}

int main(int count, char **arguments)
{
	struct side one = { .name = "the first side", .first = 0 }, two = { .name = "the second side", .first = 1 };

	if (count == 3) {
		int listens = strcmp(arguments[1], "listen") == 0, fast = 1;
		struct side *mine = listens ? &one : &two;

		mine->control = listens ? listened(arguments[2]) : reach(arguments[1], arguments[2]);
		setsockopt(mine->control, IPPROTO_TCP, TCP_NODELAY, &fast, sizeof fast);
		run_side(mine);
		printf("%llu cases\n", (unsigned long long)mine->cases);
	} else {
		pthread_t thread;
		int pair[2];

		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
		one.control = pair[0];
		two.control = pair[1];
		CHECK(pthread_create(&thread, NULL, run_side, &one) == 0, "thread");
		run_side(&two);
		CHECK(pthread_join(thread, NULL) == 0, "thread");
		printf("%llu cases\n", (unsigned long long)two.cases);
	}
	return 0;
}
