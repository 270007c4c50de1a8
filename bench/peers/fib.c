/* Forwarding tables of DPDK, which `cargo xtask peers fib` compares with Bellows.
 *
 *   fib fib|lpm|fib6|lpm6 PROCESSOR FOLDER
 *
 * FOLDER has, as `bellows bench fib` writes it:
 *   routes       lines of a prefix and a number
 *   keys-NAME    addresses, 4 bytes in the processor's order or 16 bytes in the network's
 *   next-NAME    for each address the number of its route, 4 bytes, all ones without a route
 * NAME is what the files keys-0, keys-1, … are counted by.
 *
 * Takes turns with other processes by the protocol of crates/measure/lab/src/workers.rs: one turn per request, answered by a line
 * of JSON with the clocks a look-up for each file of keys, in batches of 128, then the bytes of the table. At the end it
 * checks all results.
 *
 * Tables are on transparent huge pages, like those of Bellows. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BATCH = 128, MAX_SETS = 8, PASSES = 3, HUGE_PAGE = 2 << 20, NO_ROUTE = 0x7fff };

static const size_t ROOM = (size_t)1 << 30;

static struct rte_lpm *lpm;
static struct rte_lpm6 *lpm6;
static struct rte_fib *fib;
static struct rte_fib6 *fib6;

struct route {
	uint8_t address[16];
	uint8_t length;
	uint32_t next;
};

static struct route *routes;
static size_t route_count;

struct keys {
	uint8_t *bytes;
	size_t count;
	uint32_t *next;
};

static struct keys sets[MAX_SETS];
static size_t set_count;

/* A mistake of the caller, as opposed to a table that cannot take part. */
static void mistake(const char *what, const char *why)
{
	fprintf(stderr, "fib: %s: %s\n", what, why);
	exit(2);
}

/* The answer of a table that cannot take part. */
static void refuse(const char *why)
{
	printf("{\"machine\":null,\"outcome\":{\"Err\":\"%s\"}}\n", why);
	exit(0);
}

/* Looks up BATCH keys. A table writes numbers of its own kind to `into`, which `number` reads. */
typedef void look_up(const uint8_t *keys, void *into);

static void look_up_fib(const uint8_t *keys, void *into)
{
	rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)keys, into, BATCH);
}

static void look_up_lpm(const uint8_t *keys, void *into)
{
	rte_lpm_lookup_bulk(lpm, (const uint32_t *)keys, into, BATCH);
}

static void look_up_fib6(const uint8_t *keys, void *into)
{
	rte_fib6_lookup_bulk(fib6, (uint8_t(*)[16])(uintptr_t)keys, into, BATCH);
}

static void look_up_lpm6(const uint8_t *keys, void *into)
{
	rte_lpm6_lookup_bulk_func(lpm6, (uint8_t(*)[16])(uintptr_t)keys, into, BATCH);
}

static uint32_t number_fib(const void *from, size_t at)
{
	uint64_t next = ((const uint64_t *)from)[at];
	return next == NO_ROUTE ? UINT32_MAX : next;
}

static uint32_t number_lpm(const void *from, size_t at)
{
	uint32_t entry = ((const uint32_t *)from)[at];
	return entry & RTE_LPM_LOOKUP_SUCCESS ? entry & 0xffffff : UINT32_MAX;
}

static uint32_t number_lpm6(const void *from, size_t at)
{
	return ((const int32_t *)from)[at];
}

static void read_routes(const char *folder, bool is_ipv6)
{
	char path[4096], line[256];
	snprintf(path, sizeof path, "%s/routes", folder);
	FILE *file = fopen(path, "r");
	size_t room = 0;
	if (file == NULL)
		mistake(path, "cannot be read");
	while (fgets(line, sizeof line, file) != NULL) {
		if (route_count == room) {
			room = room ? 2 * room : 1024;
			routes = realloc(routes, room * sizeof *routes);
			if (routes == NULL)
				mistake(path, "has too many routes");
		}
		struct route *route = &routes[route_count];
		memset(route, 0, sizeof *route);
		char *slash = strchr(line, '/');
		unsigned length, next;
		if (slash == NULL || sscanf(slash + 1, "%u %u", &length, &next) != 2)
			mistake(path, "has a line that is no route");
		*slash = 0;
		if (inet_pton(is_ipv6 ? AF_INET6 : AF_INET, line, route->address) != 1)
			mistake(path, "has a line without an address");
		route->length = length;
		route->next = next;
		route_count++;
	}
	fclose(file);
}

static void *contents(const char *folder, const char *name, size_t set, size_t *length)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s-%zu", folder, name, set);
	FILE *file = fopen(path, "r");
	if (file == NULL)
		return NULL;
	fseek(file, 0, SEEK_END);
	*length = ftell(file);
	rewind(file);
	/* On ordinary pages, like the keys of Bellows. */
	void *bytes = aligned_alloc(64, RTE_ALIGN_CEIL(*length + 1, (size_t)64));
	if (bytes == NULL)
		mistake(path, "is too long");
	if (fread(bytes, 1, *length, file) != *length)
		mistake(path, "cannot be read");
	fclose(file);
	return bytes;
}

static void read_keys(const char *folder, size_t size)
{
	for (; set_count < MAX_SETS; set_count++) {
		struct keys *keys = &sets[set_count];
		size_t length, expected;
		keys->bytes = contents(folder, "keys", set_count, &length);
		if (keys->bytes == NULL)
			break;
		keys->count = length / size;
		keys->next = contents(folder, "next", set_count, &expected);
		if (keys->next == NULL || expected != keys->count * sizeof *keys->next)
			mistake(folder, "has no results for its keys");
		if (keys->count == 0 || keys->count % BATCH != 0)
			mistake(folder, "has keys that are no whole batches");
	}
}

/* A heap of DPDK on transparent huge pages, as the number of a socket. DPDK's own heap would be on small pages wherever
 * there is no hugetlbfs. */
static int huge_heap(void)
{
	char *memory = mmap(NULL, ROOM + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		mistake("memory", "there is too little");
	memory = (char *)RTE_ALIGN_CEIL((uintptr_t)memory, (uintptr_t)HUGE_PAGE);
	madvise(memory, ROOM, MADV_HUGEPAGE);
	if (rte_malloc_heap_create("tables") != 0 ||
	    rte_malloc_heap_memory_add("tables", memory, ROOM, NULL, ROOM / HUGE_PAGE, HUGE_PAGE) != 0)
		mistake("DPDK", "makes no heap");
	return rte_malloc_heap_get_socket("tables");
}

static int by_length(const void *one, const void *other)
{
	return ((const struct route *)one)->length - ((const struct route *)other)->length;
}

static int by_address(const void *one, const void *other)
{
	return memcmp(((const struct route *)one)->address, ((const struct route *)other)->address, 16);
}

/* Groups of 256 entries behind a first table for 24 bits: one for each value of 24, 32, 40, … bits that longer prefixes
 * begin with. */
static size_t groups_in_use(void)
{
	size_t count = 0;
	qsort(routes, route_count, sizeof *routes, by_address);
	for (unsigned bytes = 3; bytes < 16; bytes++) {
		const uint8_t *last = NULL;
		for (size_t i = 0; i < route_count; i++) {
			const struct route *route = &routes[i];
			if (route->length > 8 * bytes && (last == NULL || memcmp(last, route->address, bytes) != 0)) {
				last = route->address;
				count++;
			}
		}
	}
	return count;
}

static uint32_t ipv4(const struct route *route)
{
	uint32_t address;
	memcpy(&address, route->address, sizeof address);
	return ntohl(address);
}

/* Writes the tables of rte_lpm as rte_lpm_add() does for routes of ascending lengths. That function itself compares each
 * route with all others of its length, which takes minutes. */
static void fill_lpm(uint32_t tbl8s)
{
	uint32_t groups = 0;
	for (size_t i = 0; i < route_count; i++) {
		const struct route *route = &routes[i];
		uint32_t address = ipv4(route);
		struct rte_lpm_tbl_entry entry = { .next_hop = route->next, .valid = 1, .depth = route->length };
		if (route->length <= 24) {
			for (uint32_t at = 0; at < 1u << (24 - route->length); at++)
				lpm->tbl24[(address >> 8) + at] = entry;
			continue;
		}
		struct rte_lpm_tbl_entry *root = &lpm->tbl24[address >> 8];
		if (!root->valid_group) {
			struct rte_lpm_tbl_entry below = { .next_hop = root->next_hop, .valid = root->valid,
							   .depth = root->depth, .valid_group = 1 };
			if (groups == tbl8s)
				refuse("rte_lpm has too few groups");
			for (int at = 0; at < 256; at++)
				lpm->tbl8[256 * groups + at] = below;
			*root = (struct rte_lpm_tbl_entry){ .next_hop = groups++, .valid = 1, .valid_group = 1 };
		}
		entry.valid_group = 1;
		for (uint32_t at = 0; at < 1u << (32 - route->length); at++)
			lpm->tbl8[256 * root->next_hop + (address & 0xff) + at] = entry;
	}
}

static size_t create(const char *kind, int socket)
{
	size_t failed = 0, number_size = 4;
	uint32_t highest = 0;
	for (size_t i = 0; i < route_count; i++)
		highest = RTE_MAX(highest, routes[i].next);
	size_t groups = groups_in_use();
	qsort(routes, route_count, sizeof *routes, by_length);
	if (highest >= NO_ROUTE)
		refuse("the numbers of routes need more than 15 bits");
	if (strcmp(kind, "fib") == 0) {
		struct rte_fib_conf options = { .type = RTE_FIB_DIR24_8, .default_nh = NO_ROUTE, .max_routes = 2 << 20,
						.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = 4096 } };
		fib = rte_fib_create("fib", socket, &options);
		if (fib == NULL)
			refuse("rte_fib_create fails");
		for (size_t i = 0; i < route_count; i++)
			failed += rte_fib_add(fib, ipv4(&routes[i]), routes[i].length, routes[i].next) != 0;
		bool vector = rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512) == 0;
		fprintf(stderr, "rte_fib: DIR-24-8 with numbers of 2 bytes, looked up by %s\n", vector ? "AVX-512" : "scalar code");
		number_size = 2;
	} else if (strcmp(kind, "lpm") == 0) {
		struct rte_lpm_config options = { .max_rules = 16, .number_tbl8s = 4096 };
		lpm = rte_lpm_create("lpm", socket, &options);
		if (lpm == NULL)
			refuse("rte_lpm_create fails");
		fill_lpm(options.number_tbl8s);
		fprintf(stderr, "rte_lpm: DIR-24-8 with entries of 4 bytes, looked up by rte_lpm_lookup_bulk\n");
	} else if (strcmp(kind, "fib6") == 0) {
		struct rte_fib6_conf options = { .type = RTE_FIB6_TRIE, .default_nh = NO_ROUTE, .max_routes = 1 << 20,
						 .trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = 1 << 18 } };
		fib6 = rte_fib6_create("fib6", socket, &options);
		if (fib6 == NULL)
			refuse("rte_fib6_create fails");
		for (size_t i = 0; i < route_count; i++)
			failed += rte_fib6_add(fib6, routes[i].address, routes[i].length, routes[i].next) != 0;
		bool vector = rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512) == 0;
		fprintf(stderr, "rte_fib6: trie with numbers of 4 bytes, looked up by %s\n", vector ? "AVX-512" : "scalar code");
	} else {
		struct rte_lpm6_config options = { .max_rules = 1 << 18, .number_tbl8s = 1 << 18 };
		lpm6 = rte_lpm6_create("lpm6", socket, &options);
		if (lpm6 == NULL)
			refuse("rte_lpm6_create fails");
		for (size_t i = 0; i < route_count; i++)
			failed += rte_lpm6_add(lpm6, routes[i].address, routes[i].length, routes[i].next) != 0;
		fprintf(stderr, "rte_lpm6: looked up by rte_lpm6_lookup_bulk_func\n");
	}
	if (failed > 0) {
		fprintf(stderr, "fib: %zu of %zu routes could not be added\n", failed, route_count);
		refuse("routes could not be added");
	}
	/* The first table and the groups in use, without the RIB and what is in reserve. */
	return number_size * (((size_t)1 << 24) + 256 * groups);
}

static int by_size(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;
	return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		mistake("usage", "fib fib|lpm|fib6|lpm6 PROCESSOR FOLDER");
	const char *kind = argv[1];
	bool is_ipv6 = strchr(kind, '6') != NULL, is_lpm6 = strcmp(kind, "lpm6") == 0, is_lpm = strcmp(kind, "lpm") == 0;
	look_up *look_up = is_lpm6 ? look_up_lpm6 : is_ipv6 ? look_up_fib6 : is_lpm ? look_up_lpm : look_up_fib;
	uint32_t (*number)(const void *, size_t) = is_lpm6 ? number_lpm6 : is_lpm ? number_lpm : number_fib;
	size_t size = is_ipv6 ? 16 : 4;
	/* The first line is the task, which the arguments have already given; each further line requests a turn. */
	char *line = NULL;
	size_t room = 0;
	if (getline(&line, &room, stdin) < 0)
		return 0;
	char *options[] = { "fib", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "64", "--lcores", argv[2],
			    "--log-level=error", "--force-max-simd-bitwidth=512" };
	if (rte_eal_init(sizeof options / sizeof *options, options) < 0)
		mistake("DPDK", "does not start");
	read_routes(argv[3], is_ipv6);
	read_keys(argv[3], size);
	size_t bytes = create(kind, huge_heap());
	printf("{\"machine\":null,\"outcome\":{\"Ok\":null}}\n");
	fflush(stdout);

	static uint64_t into[BATCH];
	while (getline(&line, &room, stdin) >= 0) {
		double took = 0;
		printf("{\"figures\":[");
		for (size_t set = 0; set < set_count; set++) {
			const struct keys *keys = &sets[set];
			double clocks[PASSES];
			/* The first pass, untimed, reloads what other processes evicted from the caches. */
			for (int pass = -1; pass < PASSES; pass++) {
				uint64_t start = rte_rdtsc();
				for (size_t at = 0; at < keys->count; at += BATCH) {
					/* As Bellows' benchmark does: the keys of the next batch. */
					if (at + BATCH < keys->count)
						for (size_t line = 0; line < BATCH * size; line += 64)
							rte_prefetch0(keys->bytes + (at + BATCH) * size + line);
					look_up(keys->bytes + at * size, into);
				}
				if (pass >= 0)
					took += clocks[pass] = rte_rdtsc() - start;
			}
			qsort(clocks, PASSES, sizeof *clocks, by_size);
			printf("%.6f,", clocks[PASSES / 2] / keys->count);
		}
		printf("%zu],\"took\":%.0f,\"lost\":0}\n", bytes, took);
		fflush(stdout);
	}
	for (size_t set = 0; set < set_count; set++)
		for (size_t at = 0; at < sets[set].count; at += BATCH) {
			look_up(sets[set].bytes + at * size, into);
			for (size_t i = 0; i < BATCH; i++)
				if (number(into, i) != sets[set].next[at + i]) {
					printf("{\"Err\":\"%s finds %u for key %zu of set %zu, not %u\"}\n", kind, number(into, i), at + i,
					       set, sets[set].next[at + i]);
					return 0;
				}
		}
	printf("{\"Ok\":null}\n");
	return 0;
}
