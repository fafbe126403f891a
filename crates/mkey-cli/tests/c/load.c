#include <dlfcn.h>

/* Nothing here is linked to libibverbs. */
static void look(void *library, const char *version)
{
	struct ibv_device **(*list)(int *);
	const char *(*name)(struct ibv_device *);
	const char *(*status)(enum ibv_wc_status);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	struct ibv_context *context;
	struct ibv_device **found;

	CHECK(library);
	if (version) {
		*(void **)&list = dlvsym(library, "ibv_get_device_list", version);
		*(void **)&name = dlvsym(library, "ibv_get_device_name", version);
		*(void **)&open_device = dlvsym(library, "ibv_open_device", version);
		*(void **)&close_device = dlvsym(library, "ibv_close_device", version);
		*(void **)&status = dlvsym(library, "ibv_wc_status_str", version);
	} else {
		*(void **)&list = dlsym(library, "ibv_get_device_list");
		*(void **)&name = dlsym(library, "ibv_get_device_name");
		*(void **)&open_device = dlsym(library, "ibv_open_device");
		*(void **)&close_device = dlsym(library, "ibv_close_device");
		*(void **)&status = dlsym(library, "ibv_wc_status_str");
	}
	CHECK(list && name && open_device && close_device);
	/* Not ours: found in the real library behind. */
	CHECK(status);
	found = list(NULL);
	CHECK(found && found[0]);
	context = open_device(found[0]);
	CHECK(context);
	printf("%s %s\n", name(found[0]), status(IBV_WC_SUCCESS));
	CHECK(close_device(context) == 0);
}

int main(void)
{
	look(dlopen("libibverbs.so.1", RTLD_NOW), NULL);
	look(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL), "IBVERBS_1.1");
	look(dlopen("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", RTLD_LAZY), NULL);
	look(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND), "IBVERBS_1.1");
	look(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD), NULL);
	look(dlopen(NULL, RTLD_NOW), NULL);
	return 0;
}
