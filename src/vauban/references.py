"""The papers, each under the key by which docstrings cite it."""

REFERENCES = {
    "Jia2020": "Jia, Cao, Wang, Gong. Certified Robustness for Top-k Predictions against Adversarial Perturbations "
    "via Randomized Smoothing. ICLR 2020.",
    "Cohen2019": "Cohen, Rosenfeld, Kolter. Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.",
    "Hung2019": "Hung, Fithian. Rank Verification for Exponential Families. Annals of Statistics 47(2), 2019.",
    "Clopper1934": "Clopper, Pearson. The Use of Confidence or Fiducial Limits Illustrated in the Case of the "
    "Binomial. Biometrika 26, 1934.",
    "Ville1939": "Ville. Étude critique de la notion de collectif. Gauthier-Villars, Paris 1939.",
    "Boucheron2013": "Boucheron, Lugosi, Massart. Concentration Inequalities. Oxford 2013.",
    "Salmon2011": "Salmon, Moraes, Dror, Shaw. Parallel Random Numbers: As Easy as 1, 2, 3. SC 2011.",
    "Plappert2018": "Plappert, Andrychowicz, Ray, McGrew, Baker, Powell, Schneider, Tobin, Chociej, Welinder, Kumar, Zaremba. "
    "Multi-Goal Reinforcement Learning: Challenging Robotics Environments and Request for Research. arXiv:1802.09464, 2018.",
    "Agarwal2021": "Agarwal, Schwarzer, Castro, Courville, Bellemare. Deep Reinforcement Learning at the Edge of the Statistical "
    "Precipice. NeurIPS 2021.",
    "Levine2023": "Levine. Doctoral dissertation, University of Maryland, 2023 (tables and theorems cited by number).",
    "Teng2020": "Teng, Lee, Yuan. L1 Adversarial Robustness Certificates: a Randomized Smoothing Approach. OpenReview 2020.",
    "Lecuyer2019": "Lecuyer, Atlidakis, Geambasu, Hsu, Jana. Certified Robustness to Adversarial Examples with "
    "Differential Privacy. IEEE S&P 2019.",
    "Lee2019": "Lee, Yuan, Chang, Jaakkola. Tight Certificates of Adversarial Robustness for Randomly Smoothed "
    "Classifiers. NeurIPS 2019.",
    "Yang2020": "Yang, Duan, Hu, Salman, Razenshteyn, Li. Randomized Smoothing of All Shapes and Sizes. ICML 2020.",
    "Levine2020": "Levine, Feizi. Robustness Certificates for Sparse Adversarial Attacks by Randomized Ablation. AAAI 2020.",
    "Jia2022": "Jia, Wang, Cao, Liu, Gong. Almost Tight L0-norm Certified Robustness of Top-k Predictions against "
    "Adversarial Perturbations. ICLR 2022.",
    "Wang2022": "Wang, Levine, Feizi. Improved Certified Defenses against Data Poisoning with (Deterministic) Finite "
    "Aggregation. ICML 2022.",
    "Rosenfeld2020": "Rosenfeld, Winston, Ravikumar, Kolter. Certified Robustness to Label-Flipping Attacks via Randomized "
    "Smoothing. ICML 2020.",
    "Rezaei2023": "Rezaei, Banihashem, Chegini, Feizi. Run-Off Election: Improved Provable Defense against Data Poisoning "
    "Attacks. ICML 2023.",
    "Salman2019": "Salman, Yang, Li, Zhang, Zhang, Razenshteyn, Bubeck. Provably Robust Deep Learning via Adversarially Trained "
    "Smoothed Classifiers. NeurIPS 2019.",
    "Li2019": "Li, Chen, Wang, Carin. Certified Adversarial Robustness with Additive Noise. NeurIPS 2019.",
    "Jeong2020": "Jeong, Shin. Consistency Regularization for Certified Robustness of Smoothed Classifiers. NeurIPS 2020.",
    "Zhai2020": "Zhai, Dan, He, Zhang, Gong, Ravikumar, Hsieh, Wang. MACER: Attack-free and Scalable Robust Training via "
    "Maximizing Certified Radius. ICLR 2020.",
    "Tramer2019": "Tramèr, Boneh. Adversarial Training and Robustness for Multiple Perturbations. NeurIPS 2019.",
    "Duchi2008": "Duchi, Shalev-Shwartz, Singer, Chandra. Efficient Projections onto the l1-Ball for Learning in High "
    "Dimensions. ICML 2008.",
    "Steele2014": "Steele, Lea, Flood. Fast Splittable Pseudorandom Number Generators. OOPSLA 2014.",
    "Belkin2003": "Belkin, Niyogi. Laplacian Eigenmaps for Dimensionality Reduction and Data Representation. Neural Computation "
    "15(6), 2003.",
    "Gidaris2018": "Gidaris, Singh, Komodakis. Unsupervised Representation Learning by Predicting Image Rotations. ICLR 2018.",
    "Chen2020": "Chen, Kornblith, Norouzi, Hinton. A Simple Framework for Contrastive Learning of Visual Representations. "
    "ICML 2020.",
    "Chen2021": "Chen, He. Exploring Simple Siamese Representation Learning. CVPR 2021.",
    "Pototzky2022": "Pototzky, Sultan, Schmidt-Thieme. FastSiam: Resource-Efficient Self-supervised Learning on a Single GPU. "
    "GCPR 2022.",
    "Tong2023": "Tong, Chen, Ma, LeCun. EMP-SSL: Towards Self-Supervised Learning in One Training Epoch. arXiv 2304.03977, 2023.",
    "Touvron2019": "Touvron, Vedaldi, Douze, Jégou. Fixing the Train-Test Resolution Discrepancy. NeurIPS 2019.",
    "Wong2019": "Wong, Schmidt, Kolter. Wasserstein Adversarial Examples via Projected Sinkhorn Iterations. ICML 2019.",
    "Wu2020": "Wu, Wang, Yu. Stronger and Faster Wasserstein Adversarial Attacks. ICML 2020.",
    "Gowal2018": "Gowal, Dvijotham, Stanforth, Bunel, Qin, Uesato, Arandjelovic, Mann, Kohli. On the Effectiveness of Interval "
    "Bound Propagation for Training Verifiably Robust Models. arXiv:1810.12715, 2018.",
    "Zhang2017": "Zhang, Zuo, Chen, Meng, Zhang. Beyond a Gaussian Denoiser: Residual Learning of Deep CNN for Image Denoising. "
    "IEEE Transactions on Image Processing 26(7), 2017.",
    "Salman2020": "Salman, Sun, Yang, Kapoor, Kolter. Denoised Smoothing: A Provable Defense for Pretrained Classifiers. "
    "NeurIPS 2020.",
    "Horvath2022": "Horváth, Müller, Fischer, Vechev. Boosting Randomized Smoothing with Variance Reduced Classifiers. "
    "ICLR 2022.",
    "Madry2018": "Madry, Makelov, Schmidt, Tsipras, Vladu. Towards Deep Learning Models Resistant to Adversarial Attacks. "
    "ICLR 2018.",
    "Rony2019": "Rony, Hafemann, Oliveira, Ben Ayed, Sabourin, Granger. Decoupling Direction and Norm for Efficient "
    "Gradient-Based L2 Adversarial Attacks and Defenses. CVPR 2019.",
    "Pintor2021": "Pintor, Roli, Brendel, Biggio. Fast Minimum-norm Adversarial Attacks through Adaptive Norm Constraints. "
    "NeurIPS 2021.",
    "Andriushchenko2020": "Andriushchenko, Croce, Flammarion, Hein. Square Attack: a Query-Efficient Black-Box Adversarial "
    "Attack via Random Search. ECCV 2020.",
    "Schott2019": "Schott, Rauber, Bethge, Brendel. Towards the First Adversarially Robust Neural Network Model on MNIST. "
    "ICLR 2019.",
    "Papernot2016": "Papernot, McDaniel, Jha, Fredrikson, Celik, Swami. The Limitations of Deep Learning in Adversarial "
    "Settings. IEEE EuroS&P 2016.",
    "Croce2022": "Croce, Andriushchenko, Singh, Flammarion, Hein. Sparse-RS: a Versatile Framework for Query-Efficient Sparse "
    "Black-Box Adversarial Attacks. AAAI 2022.",
}
