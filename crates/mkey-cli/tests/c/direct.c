/*
 * WRITEs of a sender into memory that its peer lends, in two processes.
 *
 *   direct            every end of a lease but the next
 *   direct unmap      the memory is unmapped, and other memory takes its place
 *   direct without    nothing is lent: nothing comes of a WRITE while the target is stopped
 */
#include <time.h>

#define SIZE (256u << 10)
#define PATTERN 0x5a
#define ROUNDS 60
/* Seconds. */
#define PATIENCE 300

struct hello {
	uint64_t start;
	uint32_t qpn, rkey;
};

/* To the other side, and from it. */
static int in, out;

static void tell(const void *what, size_t length)
{
	CHECK(write(out, what, length) == (ssize_t)length);
}

static void hear(void *what, size_t length)
{
	CHECK(read(in, what, length) == (ssize_t)length);
}

static void in_step(void)
{
	char word = 'x';

	tell(&word, 1);
	hear(&word, 1);
}

/* A completion's status, or -1 when none has come in time. */
static int status_within(struct ibv_cq *cq, int milliseconds)
{
	struct timespec now, until;
	struct ibv_wc wc;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += milliseconds / 1000;
	until.tv_nsec += milliseconds % 1000 * 1000000l;
	do {
		int count = ibv_poll_cq(cq, 1, &wc);

		CHECK(count >= 0);
		if (count)
			return wc.status;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
	return -1;
}

static int lends, unmaps;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *own;
static unsigned char *memory;

static void begin(void)
{
	struct ibv_context *context = open_first();

	CHECK(pd = ibv_alloc_pd(context));
	CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
}

/* A queue pair that is connected to the other side, whose memory is in `theirs` then. */
static struct ibv_qp *connected(struct hello *theirs)
{
	struct ibv_qp *qp = make_qp(pd, cq);
	struct hello ours = { (uintptr_t)memory, qp->qp_num, own ? own->rkey : 0 };

	tell(&ours, sizeof(ours));
	hear(theirs, sizeof(*theirs));
	connect_to(qp, theirs->qpn);
	in_step();
	return qp;
}

static unsigned char byte(unsigned seed, size_t at)
{
	return (unsigned char)(seed * 31 + at * 7 + at / 256);
}

static const uint32_t lengths[] = { 1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 200, 1000, 4095, 4096, 4097, 65535,
				    65536 };
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* Where no other of them is: the last two are long. */
static size_t place(unsigned i)
{
	return i < LENGTHS - 2 ? 8 + i * 8192 + i : SIZE - (LENGTHS - i) * 65536;
}

/* The sender goes first: the target may be stopped and the rest is done. */
static void sender(pid_t target)
{
	struct hello theirs;
	struct ibv_qp *qp;
	unsigned i;
	int status;

	begin();
	CHECK(own = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE));
	qp = connected(&theirs);
	/* The target's thread carries out the first one. */
	CHECK(write_to(qp, own, 8, theirs.start, theirs.rkey) == 0);
	CHECK(status_within(cq, 20000) == IBV_WC_SUCCESS);

	CHECK(kill(target, SIGSTOP) == 0);
	/* It has stopped when the kernel says so. */
	for (;;) {
		char path[64], state = 0;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/stat", (int)target);
		CHECK(file = fopen(path, "r"));
		CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
		fclose(file);
		if (state == 'T')
			break;
	}
	if (!lends) {
		CHECK(write_to(qp, own, 8, theirs.start, theirs.rkey) == 0);
		status = status_within(cq, 300);
		CHECK(kill(target, SIGCONT) == 0);
		CHECK(status == -1 || status == IBV_WC_RETRY_EXC_ERR);
		in_step();
		return;
	}
	for (i = 0; i < LENGTHS; i++) {
		struct ibv_sge entry = { (uintptr_t)memory, lengths[i], own->lkey };
		struct ibv_send_wr wr = { .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;
		size_t at;

		for (at = 0; at < lengths[i]; at++)
			memory[at] = byte(i, at);
		wr.wr.rdma.remote_addr = theirs.start + place(i);
		wr.wr.rdma.rkey = theirs.rkey;
		if (lengths[i] <= 64 && i % 2)
			wr.send_flags |= IBV_SEND_INLINE;
		CHECK(ibv_post_send(qp, &wr, &bad) == 0);
		status = status_within(cq, 20000);
		if (status != IBV_WC_SUCCESS)
			kill(target, SIGCONT);
		CHECK(status == IBV_WC_SUCCESS);
	}
	CHECK(kill(target, SIGCONT) == 0);
	in_step();
	/* What ends one byte past the region, is refused as ever. */
	CHECK(write_to(qp, own, 8, theirs.start + SIZE - 7, theirs.rkey) == 0);
	CHECK(status_within(cq, 20000) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_destroy_qp(qp) == 0);
	in_step();

	memset(memory, 0xee, SIZE);
	for (i = 0; i < ROUNDS; i++) {
		uint32_t length = i % 3 == 0 ? 8 : i % 3 == 1 ? 4096 : 65536;

		qp = connected(&theirs);
		do {
			CHECK(write_to(qp, own, length, theirs.start, theirs.rkey) == 0);
			status = status_within(cq, 20000);
		} while (status == IBV_WC_SUCCESS);
		CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
		      status == IBV_WC_RETRY_EXC_ERR);
		CHECK(ibv_destroy_qp(qp) == 0);
		in_step();
	}
}

static void unchanged(const char *how)
{
	struct timespec now, until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += 1000000;
	do {
		size_t at;

		for (at = 0; at < 65536; at++)
			if (memory[at] != PATTERN) {
				fprintf(stderr, "%s: byte %zu was written after it had ended\n", how, at);
				exit(1);
			}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec == until.tv_sec ? now.tv_nsec < until.tv_nsec : now.tv_sec < until.tv_sec);
}

static void target(void)
{
	struct hello theirs;
	struct ibv_qp *qp;
	unsigned i;
	size_t at;

	begin();
	CHECK(own = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	qp = connected(&theirs);
	in_step();
	if (!lends)
		return;
	for (i = 0; i < LENGTHS; i++) {
		size_t here = place(i);

		for (at = 0; at < lengths[i]; at++)
			CHECK(memory[here + at] == byte(i, at));
		/* And nothing around it. */
		CHECK(i == LENGTHS - 1 || memory[here - 1] == 0);
		CHECK(i >= LENGTHS - 2 || memory[here + at] == 0);
	}
	in_step();
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_dereg_mr(own) == 0);

	for (i = 0; i < ROUNDS; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
		volatile unsigned char *first = memory;
		const char *how;

		memset(memory, 0, SIZE);
		CHECK(own = ibv_reg_mr(pd, memory, SIZE,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
		qp = connected(&theirs);
		while (*first != 0xee)
			;
		/* Some that come by themselves, too. */
		for (at = 0; at < i * 40; at++)
			(void)*first;
		if (unmaps) {
			how = "unmapped";
			CHECK(munmap(memory, SIZE) == 0);
			CHECK(mmap(memory, SIZE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
		} else if (i % 3 == 0) {
			how = "deregistered";
			CHECK(ibv_dereg_mr(own) == 0);
		} else if (i % 3 == 1) {
			how = "queue pair ended";
			CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
		} else {
			how = "registered anew";
			CHECK(ibv_rereg_mr(own, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					   IBV_ACCESS_LOCAL_WRITE) == 0);
		}
		memset(memory, PATTERN, SIZE);
		unchanged(how);
		in_step();
		CHECK(ibv_destroy_qp(qp) == 0);
		if (unmaps || i % 3)
			CHECK(ibv_dereg_mr(own) == 0);
	}
}

int main(int count, char **words)
{
	int there[2], back[2], status, ended = 0;
	pid_t far, near;

	lends = count < 2 || strcmp(words[1], "without");
	unmaps = count > 1 && strcmp(words[1], "unmap") == 0;
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	/* Whatever goes wrong, it ends; a parent's end is not its children's. */
	CHECK((far = fork()) >= 0);
	if (far == 0) {
		alarm(PATIENCE);
		in = there[0], out = back[1];
		target();
		exit(0);
	}
	CHECK((near = fork()) >= 0);
	if (near == 0) {
		alarm(PATIENCE);
		in = back[0], out = there[1];
		sender(far);
		exit(0);
	}
	while (ended < 2) {
		CHECK(wait(&status) > 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			kill(far, SIGKILL);
			kill(near, SIGKILL);
			return 1;
		}
		ended++;
	}
	puts("well");
	return 0;
}
