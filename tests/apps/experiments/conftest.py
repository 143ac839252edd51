import made_images
import pytest
import torch


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Data for every experiment."""
    return made_images.weights(made_images.camvid(made_images.data(tmp_path_factory.mktemp("made"))))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
