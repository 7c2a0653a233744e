"""A denoiser in front of a classifier, as one base classifier."""

from __future__ import annotations

from torch import Tensor, nn

from vauban.errors import BadInput
from vauban.models.composition import DENOISED_NAMES


class Denoised(nn.Module):
    """The classifier's scores for the denoiser's pictures. [Salman2020]

    The classifier may have been trained on clean pictures only; what is certified is the pair.
    """

    def __init__(self, denoiser: nn.Module, classifier: nn.Module):
        super().__init__()
        self.denoiser, self.classifier = denoiser, classifier

    @property
    def parts(self) -> dict[str, nn.Module]:
        """Denoiser and classifier, by what the names of their tensors begin with."""
        return dict(zip(DENOISED_NAMES, (self.denoiser, self.classifier), strict=True))

    def forward(self, views: Tensor) -> Tensor:
        clean = self.denoiser(views)
        if clean.shape != views.shape:
            raise BadInput(
                f"the denoiser returned {tuple(clean.shape)} for views {tuple(views.shape)}: a picture for each view, of its "
                "shape, is needed"
            )
        return self.classifier(clean)
