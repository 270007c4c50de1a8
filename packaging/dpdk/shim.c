/*
 * What Bellows needs of DPDK, as one table of functions.
 *
 * Most of DPDK's data path is inline functions and structures that change from release to release. This file is compiled
 * against the installed release (`cargo xtask dpdk`), and Bellows opens the result at run time: so Bellows itself is built
 * without DPDK, and runs with any release that this file compiles with.
 *
 * `crates/io/dpdk/src/table.rs` has the same structures. Change both together, and the version with them. All functions
 * that can fail return 0 or a negative error number.
 */

#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_version.h>

#define BELLOWS_DPDK_VERSION 1

#define EXPORTED __attribute__((visibility("default")))

/* DPDK's build constants, and where the fields of a packet buffer header (mbuf) are that Bellows reads or writes. */
struct layout {
	uint32_t mbuf;
	uint32_t headroom;
	uint32_t object_header;
	uint32_t buf_addr;
	uint32_t data_off;
	uint32_t refcnt;
	uint32_t nb_segs;
	uint32_t ol_flags;
	uint32_t pkt_len;
	uint32_t data_len;
	uint32_t buf_len;
	uint32_t pool;
	uint32_t next;
};

/* A pool of mbufs whose buffers somebody else owns. */
struct pool_request {
	const char *name;
	/* For each buffer a header of a pool's object, and the mbuf behind it. */
	void *objects;
	uint64_t object_size;
	/* Where the headroom of the first buffer begins, and the distance to the next. */
	uint64_t buffers;
	uint64_t stride;
	uint32_t count;
	uint32_t buffer_length;
	int (*give)(struct rte_mempool *, void *const *, unsigned int);
	int (*take)(struct rte_mempool *, void **, unsigned int);
	unsigned int (*available)(const struct rte_mempool *);
};

struct port_request {
	struct rte_mempool *pool;
	uint32_t mtu; /* 0 for the device's own */
	uint16_t queues;
	uint16_t descriptors;
	uint16_t promiscuous;
	/* Bytes that one buffer holds: longer frames need several. */
	uint16_t data_room;
};

struct port_info {
	char driver[64];
	char device[64];
	char bus[32];
	char step[64]; /* what failed */
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t receive_descriptors;
	uint16_t send_descriptors;
	uint16_t max_queues;
	uint16_t scatters; /* whether frames may be received in several buffers */
	uint16_t gathers;  /* whether packets may be sent from several buffers */
};

struct port_link {
	uint32_t up;
	uint32_t speed; /* Mbit/s; UINT32_MAX if unknown */
};

struct port_stats {
	uint64_t received;
	uint64_t sent;
	uint64_t missed;
	uint64_t receive_errors;
	uint64_t send_errors;
	uint64_t no_mbuf;
};

typedef void (*log_function)(const char *text, size_t length);

static log_function log_to;

static ssize_t log_write(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	if (log_to)
		log_to(text, length);
	return length;
}

/* Starts the EAL. The calling thread becomes its main thread, and is pinned. */
static int start(int count, char **arguments, log_function log)
{
	cookie_io_functions_t functions = { .write = log_write };
	FILE *stream;

	log_to = log;
	stream = fopencookie(NULL, "w", functions);
	if (stream) {
		setvbuf(stream, NULL, _IOLBF, 0);
		rte_openlog_stream(stream);
	}
	if (rte_eal_init(count, arguments) < 0)
		return rte_errno ? -rte_errno : -EINVAL;
	return 0;
}

static const char *error_text(int error)
{
	return rte_strerror(error < 0 ? -error : error);
}

static int iova_is_virtual(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

static int ops_alloc(struct rte_mempool *pool)
{
	pool->pool_data = pool;
	return 0;
}

static void ops_free(struct rte_mempool *pool)
{
	(void)pool;
}

/* Makes a pool. Its objects stay where they are as long as the process lives. */
static int make_pool(const struct pool_request *request, struct rte_mempool **made)
{
	struct rte_mempool_ops ops = { .alloc = ops_alloc, .free = ops_free };
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = request->buffer_length };
	struct rte_mempool *pool;
	uint32_t index;
	int result;

	snprintf(ops.name, sizeof(ops.name), "%s", request->name);
	ops.enqueue = request->give;
	ops.dequeue = request->take;
	ops.get_count = request->available;
	result = rte_mempool_register_ops(&ops);
	if (result < 0)
		return result;
	pool = rte_mempool_create_empty(request->name, request->count, sizeof(struct rte_mbuf), 0, sizeof(private),
					SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_SPREAD);
	if (!pool)
		return -rte_errno;
	if (pool->header_size + sizeof(struct rte_mbuf) != request->object_size || pool->trailer_size) {
		rte_mempool_free(pool);
		return -EPROTO;
	}
	result = rte_mempool_set_ops_byname(pool, request->name, NULL);
	if (result < 0) {
		rte_mempool_free(pool);
		return result;
	}
	rte_pktmbuf_pool_init(pool, &private);
	for (index = 0; index < request->count; index++) {
		char *object = (char *)request->objects + index * request->object_size;
		struct rte_mbuf *mbuf = (struct rte_mbuf *)(object + pool->header_size);
		struct rte_mempool_objhdr *header = rte_mempool_get_header(mbuf);
		uint64_t buffer = request->buffers + index * request->stride;

		header->mp = pool;
		header->iova = (rte_iova_t)(uintptr_t)mbuf;
		STAILQ_INSERT_TAIL(&pool->elt_list, header, next);
		pool->populated_size++;
		memset(mbuf, 0, sizeof(*mbuf));
		mbuf->buf_addr = (void *)(uintptr_t)buffer;
		mbuf->buf_iova = buffer;
		mbuf->buf_len = request->buffer_length;
		mbuf->pool = pool;
		mbuf->port = RTE_MBUF_PORT_INVALID;
		rte_mbuf_refcnt_set(mbuf, 1);
		mbuf->nb_segs = 1;
		mbuf->data_off = RTE_PKTMBUF_HEADROOM;
	}
	*made = pool;
	return 0;
}

/* Finds or makes the device of these arguments, and its first port. */
static int probe(const char *device, uint16_t *port)
{
	struct rte_dev_iterator iterator;
	uint16_t found = RTE_MAX_ETHPORTS, each;
	int result = rte_dev_probe(device);

	if (result < 0)
		return result;
	RTE_ETH_FOREACH_MATCHING_DEV(each, device, &iterator) {
		if (found == RTE_MAX_ETHPORTS)
			found = each;
	}
	if (found == RTE_MAX_ETHPORTS)
		return -ENODEV;
	*port = found;
	return 0;
}

/* Lets the device of a port reach memory by its virtual addresses. Devices without a bus that knows of memory need no
 * permission. */
static int map_memory(uint16_t port, void *start, size_t length, size_t page_size)
{
	static int registered;
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	if (!registered) {
		result = rte_extmem_register(start, length, NULL, 0, page_size);
		if (result < 0 && rte_errno != EEXIST)
			return -rte_errno;
		registered = 1;
	}
	if (rte_dev_dma_map(info.device, start, (uint64_t)(uintptr_t)start, length) < 0 && rte_errno != ENOTSUP)
		return -rte_errno;
	return 0;
}

static int unmap_memory(uint16_t port, void *start, size_t length)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	if (rte_dev_dma_unmap(info.device, start, (uint64_t)(uintptr_t)start, length) < 0)
		return -rte_errno;
	return 0;
}

/* What a port is, before it is opened. */
static int inspect_port(uint16_t port, struct port_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name ? info.driver_name : "");
	snprintf(out->device, sizeof(out->device), "%s", rte_dev_name(info.device));
	snprintf(out->bus, sizeof(out->bus), "%s", rte_bus_name(rte_dev_bus(info.device)));
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	out->max_queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	return 0;
}

#define STEP(text) snprintf(out->step, sizeof(out->step), "%s", text)

/* Configures and starts a port. */
static int open_port(uint16_t port, const struct port_request *request, struct port_info *out)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_eth_dev_info info;
	struct rte_eth_rxconf rx;
	struct rte_eth_txconf tx;
	uint16_t rx_descriptors = request->descriptors, tx_descriptors = request->descriptors, queue;
	uint32_t mtu = request->mtu ? request->mtu : RTE_ETHER_MTU;
	/* A VLAN tag and a checksum come with frames of the MTU. */
	uint32_t frame = mtu + RTE_ETHER_HDR_LEN + 4 + RTE_ETHER_CRC_LEN;
	int result;

	STEP("ask for the properties");
	result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	if (request->mtu)
		conf.rxmode.mtu = request->mtu;
	if (frame > request->data_room && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER)) {
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
		out->scatters = 1;
	}
	if (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) {
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
		out->gathers = 1;
	}
	if (request->queues > 1) {
		conf.rx_adv_conf.rss_conf.rss_hf =
			info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
		if (conf.rx_adv_conf.rss_conf.rss_hf)
			conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	}
	STEP("configure it");
	result = rte_eth_dev_configure(port, request->queues, request->queues, &conf);
	if (result < 0)
		return result;
	STEP("set the number of descriptors");
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_descriptors, &tx_descriptors);
	if (result < 0)
		return result;
	if (request->mtu) {
		STEP("set the MTU");
		result = rte_eth_dev_set_mtu(port, request->mtu);
		if (result < 0 && result != -ENOTSUP)
			return result;
	}
	rx = info.default_rxconf;
	rx.offloads = conf.rxmode.offloads;
	tx = info.default_txconf;
	tx.offloads = conf.txmode.offloads;
	for (queue = 0; queue < request->queues; queue++) {
		STEP("set up a receive queue");
		result = rte_eth_rx_queue_setup(port, queue, rx_descriptors, SOCKET_ID_ANY, &rx, request->pool);
		if (result < 0)
			return result;
		STEP("set up a transmit queue");
		result = rte_eth_tx_queue_setup(port, queue, tx_descriptors, SOCKET_ID_ANY, &tx);
		if (result < 0)
			return result;
	}
	STEP("start it");
	result = rte_eth_dev_start(port);
	if (result < 0)
		return result;
	STEP("set promiscuous mode");
	result = request->promiscuous ? rte_eth_promiscuous_enable(port) : rte_eth_promiscuous_disable(port);
	if (result < 0 && result != -ENOTSUP)
		return result;
	STEP("");
	out->receive_descriptors = rx_descriptors;
	out->send_descriptors = tx_descriptors;
	return rte_eth_dev_get_mtu(port, &out->mtu);
}

static int stop_port(uint16_t port)
{
	return rte_eth_dev_stop(port);
}

/* Closes a port that is stopped, or was never started, and removes its device. */
static int remove_port(uint16_t port)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0)
		return result;
	rte_eth_dev_close(port);
	return rte_dev_remove(info.device);
}

static int get_link(uint16_t port, struct port_link *out)
{
	struct rte_eth_link link;
	int result = rte_eth_link_get_nowait(port, &link);

	if (result < 0)
		return result;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	out->speed = link.link_speed == RTE_ETH_SPEED_NUM_NONE ? UINT32_MAX : link.link_speed;
	return 0;
}

static int get_stats(uint16_t port, struct port_stats *out)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);

	if (result < 0)
		return result;
	out->received = stats.ipackets;
	out->sent = stats.opackets;
	out->missed = stats.imissed;
	out->receive_errors = stats.ierrors;
	out->send_errors = stats.oerrors;
	out->no_mbuf = stats.rx_nombuf;
	return 0;
}

static uint16_t receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

static uint16_t transmit(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

/* Ends an mbuf, with those behind it, whatever pool they are of. */
static void end(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

/* A part of an mbuf that may be one of several and of any pool: its bytes, and the next part. */
static struct rte_mbuf *part(struct rte_mbuf *mbuf, const uint8_t **bytes, uint32_t *length)
{
	*bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	*length = mbuf->data_len;
	return mbuf->nb_segs > 1 || mbuf->next ? mbuf->next : NULL;
}

static const struct layout layout = {
	.mbuf = sizeof(struct rte_mbuf),
	.headroom = RTE_PKTMBUF_HEADROOM,
	.object_header = RTE_CACHE_LINE_ROUNDUP(sizeof(struct rte_mempool_objhdr)),
	.buf_addr = offsetof(struct rte_mbuf, buf_addr),
	.data_off = offsetof(struct rte_mbuf, data_off),
	.refcnt = offsetof(struct rte_mbuf, refcnt),
	.nb_segs = offsetof(struct rte_mbuf, nb_segs),
	.ol_flags = offsetof(struct rte_mbuf, ol_flags),
	.pkt_len = offsetof(struct rte_mbuf, pkt_len),
	.data_len = offsetof(struct rte_mbuf, data_len),
	.buf_len = offsetof(struct rte_mbuf, buf_len),
	.pool = offsetof(struct rte_mbuf, pool),
	.next = offsetof(struct rte_mbuf, next),
};

struct table {
	/* These three stay the same in all versions. */
	uint32_t version;
	uint32_t size;
	const char *release;
	const struct layout *layout;
	int (*start)(int, char **, log_function);
	const char *(*error_text)(int);
	int (*iova_is_virtual)(void);
	int (*make_pool)(const struct pool_request *, struct rte_mempool **);
	int (*probe)(const char *, uint16_t *);
	int (*map_memory)(uint16_t, void *, size_t, size_t);
	int (*unmap_memory)(uint16_t, void *, size_t);
	int (*inspect_port)(uint16_t, struct port_info *);
	int (*open_port)(uint16_t, const struct port_request *, struct port_info *);
	int (*stop_port)(uint16_t);
	int (*remove_port)(uint16_t);
	int (*get_link)(uint16_t, struct port_link *);
	int (*get_stats)(uint16_t, struct port_stats *);
	uint16_t (*receive)(uint16_t, uint16_t, struct rte_mbuf **, uint16_t);
	uint16_t (*transmit)(uint16_t, uint16_t, struct rte_mbuf **, uint16_t);
	void (*end)(struct rte_mbuf *);
	struct rte_mbuf *(*part)(struct rte_mbuf *, const uint8_t **, uint32_t *);
};

EXPORTED const struct table *bellows_dpdk_table(void);

const struct table *bellows_dpdk_table(void)
{
	static struct table table = {
		.version = BELLOWS_DPDK_VERSION,
		.size = sizeof(struct table),
		.layout = &layout,
		.start = start,
		.error_text = error_text,
		.iova_is_virtual = iova_is_virtual,
		.make_pool = make_pool,
		.probe = probe,
		.map_memory = map_memory,
		.unmap_memory = unmap_memory,
		.inspect_port = inspect_port,
		.open_port = open_port,
		.stop_port = stop_port,
		.remove_port = remove_port,
		.get_link = get_link,
		.get_stats = get_stats,
		.receive = receive,
		.transmit = transmit,
		.end = end,
		.part = part,
	};

	table.release = rte_version();
	return &table;
}
