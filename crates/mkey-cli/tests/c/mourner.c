/*
 * A server that writes into the memory of one client after another, and outlives those that are killed.
 *
 *   mourner listen PORT CLIENTS TIMEOUT   the server: RDMA WRITEs without end, until the client is gone
 *   mourner HOST PORT [MESSAGES]          a client: lends memory, until killed or so much was written
 *
 * TIMEOUT is that of the queue pair, 4.096 us * 2^TIMEOUT, and 7 times more are tried. The server prints
 * "moving" as its first WRITE to a client is done, and how it ended: "served", or a status and the
 * microseconds from the end of the client's stream socket to the completion that says so.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>

#define LENGTH 65536u
#define DEPTH 8
#define NEVER (-1ll)

struct address {
	uint32_t qpn, rkey;
	uint64_t start, messages;
	uint8_t gid[16];
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static int64_t now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000ll + time.tv_nsec / 1000;
}

static struct end open_end(void)
{
	struct end end = { .context = open_first() };

	end.memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(end.memory != MAP_FAILED);
	CHECK((end.pd = ibv_alloc_pd(end.context)));
	CHECK((end.cq = ibv_create_cq(end.context, 64, NULL, NULL, 0)));
	CHECK((end.mr = ibv_reg_mr(end.pd, end.memory, LENGTH,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	return end;
}

static void tell(int to, const void *bytes, size_t length)
{
	CHECK(send(to, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
}

static int hear(int from, void *bytes, size_t length)
{
	return recv(from, bytes, length, MSG_WAITALL) == (ssize_t)length;
}

static struct address own_address(const struct end *end, const struct ibv_qp *qp, uint64_t messages)
{
	struct address own = { qp->qp_num, end->mr->rkey, (uintptr_t)end->memory, messages, {0} };
	union ibv_gid gid;

	CHECK(ibv_query_gid(end->context, 1, 0, &gid) == 0);
	memcpy(own.gid, &gid, 16);
	return own;
}

static void connect_qp(struct ibv_qp *qp, const struct address *peer, uint8_t timeout)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = peer->qpn, .max_dest_rd_atomic = 1, .min_rnr_timer = 1 };

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.hop_limit = 64;
	memcpy(&attr.ah_attr.grh.dgid, peer->gid, 16);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 7,
				     .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static int has_hung_up(int stream)
{
	char byte;

	return recv(stream, &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* Writes until the client has enough or is gone. */
static void serve(struct end *end, int stream, uint8_t timeout)
{
	struct ibv_qp *qp = make_qp(end->pd, end->cq);
	struct address peer, own = own_address(end, qp, 0);
	int64_t gone = NEVER;
	uint64_t posted = 0, done = 0;
	struct ibv_wc wc;

	CHECK(hear(stream, &peer, sizeof peer));
	connect_qp(qp, &peer, timeout);
	tell(stream, &own, sizeof own);
	/* The client is ready to receive as it answers. */
	CHECK(hear(stream, &own, 1));
	for (;;) {
		while (posted - done < DEPTH && posted < peer.messages) {
			CHECK(write_to(qp, end->mr, LENGTH, peer.start, peer.rkey) == 0);
			posted++;
		}
		int count = ibv_poll_cq(end->cq, 1, &wc);

		CHECK(count >= 0);
		if (gone == NEVER && has_hung_up(stream))
			gone = now_us();
		if (count == 0)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			break;
		if (++done == 1)
			puts("moving");
		if (done == peer.messages) {
			/* So that it ends. */
			tell(stream, "", 1);
			puts("served");
			break;
		}
	}
	if (wc.status != IBV_WC_SUCCESS) {
		/* The queue pair may know it first. */
		while (gone == NEVER && !has_hung_up(stream))
			;
		printf("%d %lld\n", wc.status, gone == NEVER ? 0 : (long long)(now_us() - gone));
	}
	CHECK(ibv_destroy_qp(qp) == 0);
	close(stream);
}

static void lend(struct end *end, int stream, uint64_t messages)
{
	struct ibv_qp *qp = make_qp(end->pd, end->cq);
	struct address peer, own = own_address(end, qp, messages);

	tell(stream, &own, sizeof own);
	CHECK(hear(stream, &peer, sizeof peer));
	connect_qp(qp, &peer, 14);
	tell(stream, "", 1);
	CHECK(hear(stream, &own, 1));
}

static int reach(const char *host, const char *port, int listens)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0 }, *found;
	int one = 1, made;

	CHECK(getaddrinfo(host, port, &hints, &found) == 0);
	CHECK((made = socket(found->ai_family, found->ai_socktype, 0)) >= 0);
	CHECK(setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	CHECK(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
	if (listens)
		CHECK(bind(made, found->ai_addr, found->ai_addrlen) == 0 && listen(made, 8) == 0);
	else
		CHECK(connect(made, found->ai_addr, found->ai_addrlen) == 0);
	freeaddrinfo(found);
	return made;
}

int main(int count, char **arguments)
{
	struct end end = open_end();

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count == 5 && strcmp(arguments[1], "listen") == 0) {
		int listener = reach(NULL, arguments[2], 1);

		puts("listening");
		for (int clients = atoi(arguments[3]); clients > 0; clients--) {
			int stream = accept(listener, NULL, NULL);

			CHECK(stream >= 0);
			serve(&end, stream, (uint8_t)atoi(arguments[4]));
		}
		return 0;
	}
	CHECK(count == 3 || count == 4);
	lend(&end, reach(arguments[1], arguments[2], 0),
	     count == 4 ? strtoull(arguments[3], NULL, 10) : UINT64_MAX);
	return 0;
}
