/* Closes a descriptor that it does not know, and opens a file that gets its number. */
#include <sys/stat.h>

static struct ibv_context *context;
static char memory[4096];

static void refused_once(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *one = make_qp(pd, cq), *two = make_qp(pd, cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	connect_to(one, two->qp_num);
	connect_to(two, one->qp_num);
	CHECK(write_to(one, mr, 8, (uintptr_t)memory + 4090, mr->rkey) == 0);
	CHECK(polled(cq) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static int open_on(const char *name)
{
	struct stat wanted, found;

	CHECK(stat(name, &wanted) == 0);
	for (int fd = 3; fd < 1000; fd++)
		if (fstat(fd, &found) == 0 && found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino)
			return fd;
	return -1;
}

int main(int count, char **arguments)
{
	const char *files[] = { getenv("MKEY_REFUSALS"), getenv("MKEY_FINDINGS") };
	struct stat own;
	int number;

	CHECK(count == 2);
	context = open_first();
	refused_once();
	for (int at = 0; at < 2; at++) {
		number = open_on(files[at]);
		CHECK(number > 2);
		CHECK(dup2(open(arguments[1], O_RDWR | O_CREAT, 0600), number) == number);
	}
	refused_once();
	CHECK(ibv_close_device(context) == 0);
	CHECK(fstat(number, &own) == 0 && own.st_size == 0);
	return 0;
}
