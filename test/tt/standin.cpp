// See tt_metal.hpp. Calls between the functions here that tt-metal has in different files go through the table
// of imported functions, as they do there, so that a preloaded library gets between them.
#include "tt_metal.hpp"

#include <stdexcept>

namespace tt::tt_metal {

static std::atomic<std::uint64_t> next_address{0x10000};

#if STANDIN_FORM != 3
std::uint32_t CoreRangeSet::num_cores() const { return cores_; }
#endif

// ---- buffers ----

Buffer::Buffer(IDevice *device, std::uint64_t size, std::uint64_t page_size, BufferType type, bool hooked)
    : device_(device), size_(size), type_(type), page_size_(page_size),
      address_(hooked ? 0 : next_address.fetch_add(32))
{
}

std::shared_ptr<Buffer> Buffer::create(IDevice *device, std::uint64_t size, std::uint64_t page_size, BufferType type,
                                       bool hooked)
{
    auto buffer = std::make_shared<Buffer>(device, size, page_size, type, hooked);
    buffer->allocated_ = true; // before it is told, as there: an exception must not leak it
    GraphTracker::instance().track_allocate(buffer.get());
    return buffer;
}

Buffer::~Buffer()
{
    if (allocated_ && size_ != 0)
        GraphTracker::instance().track_deallocate(this);
}

#if STANDIN_FORM == 1
IDevice *Buffer::device() const { return device_; }
std::uint64_t Buffer::size() const { return size_; }
BufferType Buffer::buffer_type() const { return type_; }
#endif
std::uint32_t Buffer::address() const { return static_cast<std::uint32_t>(address_); }
std::uint64_t Buffer::page_size() const { return page_size_; }
std::uint32_t Buffer::num_pages() const
{
    return page_size_ == 0 ? 0 : static_cast<std::uint32_t>(size_ / page_size_);
}
bool Buffer::is_dram() const { return type_ == BufferType::DRAM || type_ == BufferType::TRACE; }
bool Buffer::is_l1() const { return type_ == BufferType::L1 || type_ == BufferType::L1_SMALL; }

// ---- devices ----

Device::~Device() = default;
int Device::arch() const { return 3; }
int Device::num_dram_channels() const { return 8; }
std::uint32_t Device::l1_size_per_core() const { return 1572864; }
std::uint32_t Device::dram_size_per_channel() const { return 4278190080u; }
CoreCoord Device::compute_with_storage_grid_size() const { return {14, 10}; }

namespace distributed {
static std::atomic<int> next_mesh{1};
MeshDevice::MeshDevice(std::vector<IDevice *> devices) : devices_(std::move(devices)), id_(next_mesh++) {}
MeshDevice::~MeshDevice() = default;
int MeshDevice::arch() const { return devices_.at(0)->arch(); }
int MeshDevice::id() const { return id_; }
int MeshDevice::build_id() const { return devices_.at(0)->build_id(); }
int MeshDevice::num_dram_channels() const { return devices_.at(0)->num_dram_channels(); }
std::uint32_t MeshDevice::l1_size_per_core() const { return devices_.at(0)->l1_size_per_core(); }
std::uint32_t MeshDevice::dram_size_per_channel() const { return devices_.at(0)->dram_size_per_channel(); }
CoreCoord MeshDevice::compute_with_storage_grid_size() const
{
    return devices_.at(0)->compute_with_storage_grid_size();
}
#if STANDIN_FORM != 3
std::vector<IDevice *> MeshDevice::get_devices() const { return devices_; }
#endif
} // namespace distributed

// ---- the tracker ----

GraphTracker &GraphTracker::instance()
{
    static GraphTracker *tracker = new GraphTracker; // outlives the buffers of static objects
    return *tracker;
}

void GraphTracker::track_allocate(const Buffer *)
{
    allocated++;
    if (throws)
        throw std::runtime_error("a processor of the program's");
}
void GraphTracker::track_deallocate(Buffer *) { freed++; }
void GraphTracker::track_allocate_cb(const CoreRangeSet &, std::uint64_t, std::uint64_t, bool, const IDevice *)
{
    cbs++;
    if (throws)
        throw std::runtime_error("a processor of the program's");
}
void GraphTracker::track_deallocate_cb(const IDevice *) { cb_frees++; }

// ---- programs ----

namespace detail {
ProgramImpl::ProgramImpl(std::vector<std::size_t> kernels, std::vector<std::uint64_t> cbs, std::uint64_t base,
                         std::uint32_t cores)
    : kernels_(std::move(kernels)), cbs_(std::move(cbs)), base_(base), cores_(cores)
{
}

ProgramImpl::~ProgramImpl() noexcept
{
    deallocate_circular_buffers();
    Inspector::program_destroyed(this);
}

void ProgramImpl::compile(IDevice *, bool)
{
    GraphTracker::instance().compiled++;
    if (GraphTracker::instance().throws)
        throw std::runtime_error("the compiler failed");
}

void ProgramImpl::allocate_circular_buffers(const IDevice *device)
{
    std::uint64_t address = base_;
    cb_devices_.push_back(device);
    for (std::uint64_t size : cbs_) {
        GraphTracker::instance().track_allocate_cb(cores_, address, size, false, device);
        address += size;
    }
    // One that lies in a buffer, which is counted as that.
    GraphTracker::instance().track_allocate_cb(cores_, 0x80000, 4096, true, device);
}

void ProgramImpl::deallocate_circular_buffers()
{
    for (const IDevice *device : cb_devices_)
        GraphTracker::instance().track_deallocate_cb(device);
    cb_devices_.clear();
}

std::size_t ProgramImpl::num_kernels() const { return kernels_.size(); }

#if STANDIN_FORM != 3
std::vector<KernelMeta> ProgramImpl::collect_kernel_meta(IDevice *device) const
{
    std::vector<KernelMeta> result;
    for (std::size_t size : kernels_) {
        KernelMeta meta{.name = "kernel", .source = "kernel.cpp"};
        if (device)
            meta.binary_meta.push_back({0, size});
        result.push_back(std::move(meta));
    }
    return result;
}
#endif
} // namespace detail

void Inspector::program_destroyed(const detail::ProgramImpl *) noexcept
{
    GraphTracker::instance().destroyed++;
}

} // namespace tt::tt_metal
