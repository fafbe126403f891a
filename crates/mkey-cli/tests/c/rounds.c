/* Devices that are opened, used and closed again: nothing of them stays. */
#include <dirent.h>

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	CHECK(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void round_of_use(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	struct ibv_srq_init_attr init = { .attr = { 16, 1, 0 } };
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *one = make_qp(pd, cq), *two = make_qp(pd, cq);

	CHECK(mr && ibv_create_srq(pd, &init));
	connect_to(one, two->qp_num);
	connect_to(two, one->qp_num);
	CHECK(write_to(one, mr, 64, (uintptr_t)memory + 1024, mr->rkey) == 0);
	CHECK(polled(cq) == IBV_WC_SUCCESS);
	CHECK(ibv_close_device(context) == 0);
}

int main(void)
{
	int early, late;

	/* What there is one of for the process is made. */
	round_of_use();
	early = descriptors();
	for (int round = 0; round < 300; round++)
		round_of_use();
	late = descriptors();
	fprintf(stderr, "%d descriptors, then %d\n", early, late);
	CHECK(late <= early + 2);
	puts("well");
	return 0;
}
